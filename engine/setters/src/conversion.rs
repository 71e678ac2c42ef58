//! The parameter of a setter, and its conversion into the field's value.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{GenericArgument, Ident, PathArguments, Type};

/// The parameter of a setter.
pub(crate) struct Conversion {
    /// The type of the parameter.
    pub parameter: TokenStream,
    /// The value of the field, from the parameter.
    pub value: TokenStream,
}

impl Conversion {
    /// The conversion of a parameter `name` into a field of a type.
    pub fn new(name: &Ident, field: &Type) -> Conversion {
        match (last_segment(field).as_deref(), generics(field).as_slice()) {
            (Some("Option"), [inner]) => {
                let Conversion { parameter, value } = Conversion::new(name, inner);
                Conversion {
                    parameter,
                    value: quote!(::core::option::Option::Some(#value)),
                }
            }
            (Some("Vec"), [item]) if is_plain(item) => Conversion {
                parameter: quote!(impl ::core::iter::IntoIterator<Item = #item>),
                value: quote!(::core::iter::Iterator::collect(
                    ::core::iter::IntoIterator::into_iter(#name)
                )),
            },
            (Some("Vec"), [item]) => Conversion {
                parameter: quote!(
                    impl ::core::iter::IntoIterator<Item = impl ::core::convert::Into<#item>>
                ),
                value: quote!(::core::iter::Iterator::collect(::core::iter::Iterator::map(
                    ::core::iter::IntoIterator::into_iter(#name),
                    ::core::convert::Into::into,
                ))),
            },
            (Some("IndexMap" | "BTreeMap"), [key, item]) => {
                let mut item_parameter = quote!(#item);
                let mut item_value = quote!(item);
                if !is_plain(item) {
                    item_parameter = quote!(impl ::core::convert::Into<#item>);
                    item_value = quote!(::core::convert::Into::into(item));
                }
                let key_parameter = quote!(impl ::core::convert::Into<#key>);
                Conversion {
                    parameter: quote!(
                        impl ::core::iter::IntoIterator<Item = (#key_parameter, #item_parameter)>
                    ),
                    value: quote!(::core::iter::Iterator::collect(::core::iter::Iterator::map(
                        ::core::iter::IntoIterator::into_iter(#name),
                        |(key, item)| (::core::convert::Into::into(key), #item_value),
                    ))),
                }
            }
            _ if is_plain(field) => Conversion {
                parameter: quote!(#field),
                value: quote!(#name),
            },
            _ => Conversion {
                parameter: quote!(impl ::core::convert::Into<#field>),
                value: quote!(::core::convert::Into::into(#name)),
            },
        }
    }
}

/// True for types that literals have without a conversion.
fn is_plain(field: &Type) -> bool {
    const PLAIN: [&str; 13] = [
        "bool", "u8", "u16", "u32", "u64", "usize", "i8", "i16", "i32", "i64", "isize", "f32",
        "f64",
    ];
    last_segment(field).is_some_and(|name| PLAIN.contains(&name.as_str()))
}

fn last_segment(field: &Type) -> Option<String> {
    let Type::Path(path) = field else { return None };
    let segment = path.path.segments.last()?;
    Some(segment.ident.to_string())
}

fn generics(field: &Type) -> Vec<&Type> {
    let Type::Path(path) = field else {
        return Vec::new();
    };
    let Some(segment) = path.path.segments.last() else {
        return Vec::new();
    };
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else {
        return Vec::new();
    };
    let mut types = Vec::new();
    for argument in &arguments.args {
        // Lifetimes and constants make the type one that is not known here.
        let GenericArgument::Type(inner) = argument else {
            return Vec::new();
        };
        types.push(inner);
    }
    types
}
