//! `#[derive(Setters)]`: a configuration's constructor and a method for each of its options.

mod conversion;
mod expand;

use proc_macro::TokenStream;

/// Generates a method for each field of a configuration, which sets it and returns the configuration. With
/// `#[setters(fn name(field, ...))]`, it also generates the function `name`, which takes those fields and leaves the
/// others at the defaults that serde knows.
///
/// ```
/// use forebay_setters::Setters;
///
/// /// Cuts values.
/// #[derive(Debug, PartialEq, Setters)]
/// #[setters(fn clip(columns), example = r#"clip(["price"]).min(0.0)"#)]
/// pub struct Clip {
///     /// The columns.
///     pub columns: Vec<String>,
///     /// The lower bound.
///     pub min: Option<f64>,
/// }
///
/// assert_eq!(clip(["price"]).min(0.0), Clip { columns: vec!["price".into()], min: Some(0.0) });
/// ```
///
/// A method takes what is natural for the type of its field: `Option<T>` takes a `T`, `Vec<T>` anything that gives
/// values that become `T`, a map pairs of such values, numbers and booleans themselves, and all other types what
/// converts into them. A field with `#[setters(skip)]` has no method. A struct of one unnamed field has a function
/// alone; the name of its argument is free.
#[proc_macro_derive(Setters, attributes(setters))]
pub fn setters(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    expand::expand(&input)
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}
