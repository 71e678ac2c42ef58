//! The arguments of kernels: the structs of `kernels.cu`, field by field.

/// An argument as kernels take it: eight bytes.
pub trait KernelWord {
    fn word(self) -> u64;
}

impl KernelWord for u64 {
    fn word(self) -> u64 {
        self
    }
}

impl KernelWord for f64 {
    fn word(self) -> u64 {
        self.to_bits()
    }
}

/// The arguments of a kernel.
pub trait KernelArguments {
    const KERNEL: &'static str;
    /// The first is the number of threads.
    fn words(&self) -> Vec<u64>;
}

macro_rules! arguments {
    ($($name:ident = $kernel:literal { $($field:ident: $type:ty),* })*) => {
        $(
            #[derive(Debug, Clone, Copy)]
            pub struct $name {
                $(pub $field: $type),*
            }

            impl KernelArguments for $name {
                const KERNEL: &'static str = $kernel;

                fn words(&self) -> Vec<u64> {
                    vec![$(self.$field.word()),*]
                }
            }
        )*

        /// The names of all kernels.
        pub const KERNELS: &[&str] = &[$($kernel),*];

        /// The names of kernels' structs, and of their fields.
        #[cfg(test)]
        const FIELDS: &[(&str, &[&str])] = &[$((stringify!($name), &[$(stringify!($field)),*])),*];
    };
}

arguments! {
    Gather = "gather" {
        count: u64, dense: u64, ids: u64, tables: u64, columns: u64, values: u64,
        dense_width: u64, width: u64, stride: u64, ids_width: u64
    }
    Activate = "activate" {
        count: u64, sums: u64, biases: u64, values: u64, width: u64, stride: u64
    }
    Judge = "judge" {
        count: u64, sums: u64, bias: u64, labels: u64, weights: u64, mask: u64, ids: u64,
        tables: u64, columns: u64, added: u64, ids_width: u64, logistic: u64, slopes: u64,
        values: u64, stride: u64, lost: u64, strange: u64, peak: u64
    }
    Fold = "fold" { count: u64, from: u64, to: u64, pairs: u64, each: u64 }
    Unrelu = "unrelu" { count: u64, sums: u64, values: u64, slopes: u64, width: u64, stride: u64 }
    Peak = "peak" {
        count: u64, entries: u64, columns_count: u64, slopes: u64, stride: u64, first: u64,
        step: u64, peak: u64
    }
    Embed = "embed" {
        count: u64, columns_count: u64, columns: u64, ids: u64, ids_width: u64, slopes: u64,
        stride: u64, first: u64, step: u64, sums: u64, stamps: u64, training_step: u64,
        peak: u64, room: u64
    }
    Square = "square" {
        count: u64, gradient: u64, gradient_count: u64, entries: u64, columns_count: u64,
        columns: u64, ids: u64, ids_width: u64, sums: u64, stamps: u64, training_step: u64,
        peak: u64, room: u64, squares: u64
    }
    Control = "control" {
        count: u64, lost: u64, squares: u64, norm_max: f64, labels: u64, rows: u64, strange: u64,
        control: u64, report: u64
    }
    Move = "move" {
        count: u64, gradient: u64, values: u64, means: u64, squares: u64, copy: u64, width: u64,
        stride: u64, control: u64, rate: f64, mean_scale: f64, square_scale: f64, kept: f64
    }
    MoveTables = "move_tables" {
        count: u64, columns_count: u64, columns: u64, ids: u64, ids_width: u64, sums: u64,
        stamps: u64, training_step: u64, peak: u64, room: u64, tables: u64, means: u64,
        squares: u64, control: u64, rate: f64, mean_scale: f64, square_scale: f64
    }
    Copy = "copy_weights" { count: u64, values: u64, copy: u64, width: u64, stride: u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The structs of the source that kernels take, with their fields.
    fn structs(source: &str) -> Vec<(String, Vec<String>)> {
        let mut found = Vec::new();
        for part in source.split("typedef struct {").skip(1) {
            let (body, rest) = part.split_once('}').unwrap();
            let name = rest.trim_start().split(';').next().unwrap().to_owned();
            let fields = body.lines().filter_map(|line| {
                let field = line.trim().strip_suffix(';')?;
                Some(field.rsplit([' ', '*']).next().unwrap().to_owned())
            });
            found.push((name, fields.collect()));
        }
        found
    }

    #[test]
    fn structs_are_those_of_the_source() {
        let source = include_str!("kernels.cu");
        let structs = structs(source);
        for ((name, fields), kernel) in FIELDS.iter().zip(KERNELS) {
            let of_source = structs.iter().find(|(other, _)| other == name).unwrap();
            assert_eq!(of_source.1, *fields, "{name}");
            assert!(
                source.contains(&format!("EACH({kernel}, {name}) {{")),
                "{kernel}"
            );
        }
        assert_eq!(source.matches("\nEACH(").count(), KERNELS.len());
    }
}
