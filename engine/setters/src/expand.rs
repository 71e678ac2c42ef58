//! The generated code.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, ExprLit, Field, Fields, Ident, Lit, LitStr, Meta,
    Result, Token,
};

use crate::conversion::Conversion;

/// `#[setters(fn name(field, ...), example = "...")]` on the struct.
#[derive(Default)]
struct StructOptions {
    function: Option<Function>,
    example: Option<LitStr>,
}

/// The constructor.
struct Function {
    name: Ident,
    arguments: Vec<Ident>,
}

impl Parse for StructOptions {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut options = StructOptions::default();
        while !input.is_empty() {
            if input.peek(Token![fn]) {
                input.parse::<Token![fn]>()?;
                let name = input.parse()?;
                let inner;
                syn::parenthesized!(inner in input);
                let arguments = Punctuated::<Ident, Token![,]>::parse_terminated(&inner)?
                    .into_iter()
                    .collect();
                options.function = Some(Function { name, arguments });
            } else {
                let key: Ident = input.parse()?;
                if key != "example" {
                    return Err(Error::new(
                        key.span(),
                        "expected `fn name(field, ...)` or `example = \"...\"`",
                    ));
                }
                input.parse::<Token![=]>()?;
                options.example = Some(input.parse()?);
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.ident.span(), "`Setters` is for structs"));
    };
    let mut attributes = input.attrs.iter();
    let options = match attributes.find(|attribute| attribute.path().is_ident("setters")) {
        Some(attribute) => attribute.parse_args()?,
        None => StructOptions::default(),
    };
    match &data.fields {
        Fields::Named(fields) => {
            expand_named(input, &options, &fields.named.iter().collect::<Vec<_>>())
        }
        Fields::Unnamed(fields) if fields.unnamed.len() == 1 => {
            expand_newtype(input, &options, &fields.unnamed[0])
        }
        _ => Err(Error::new(
            input.ident.span(),
            "`Setters` is for structs of named fields or of one field",
        )),
    }
}

fn expand_named(
    input: &DeriveInput,
    options: &StructOptions,
    fields: &[&Field],
) -> Result<TokenStream> {
    let type_name = &input.ident;
    let arguments = match &options.function {
        Some(function) => function.arguments.as_slice(),
        None => &[],
    };
    for argument in arguments {
        if field_named(fields, argument).is_none() {
            let message = format!("`{type_name}` has no field `{argument}`");
            return Err(Error::new(argument.span(), message));
        }
    }
    let mut methods = TokenStream::new();
    for field in fields {
        let Some(name) = &field.ident else { continue };
        // Arguments of the constructor are set there.
        if arguments.contains(name) || is_skipped(field) {
            continue;
        }
        let Conversion { parameter, value } = Conversion::new(name, &field.ty);
        let docs = docs(&field.attrs);
        methods.extend(quote! {
            #(#docs)*
            #[must_use]
            pub fn #name(mut self, #name: #parameter) -> Self {
                self.#name = #value;
                self
            }
        });
    }
    let Some(function) = &options.function else {
        return Ok(quote!(impl #type_name { #methods }));
    };
    let mut parameter_list = Vec::new();
    let mut values = Vec::new();
    for argument in arguments {
        let Some(field) = field_named(fields, argument) else {
            continue;
        };
        let Conversion { parameter, value } = Conversion::new(argument, &field.ty);
        parameter_list.push(quote!(#argument: #parameter));
        values.push(quote!(#argument: #value));
    }
    for field in fields {
        let Some(name) = &field.ident else { continue };
        if arguments.contains(name) {
            continue;
        }
        let default = default_of(field)?;
        values.push(quote!(#name: #default));
    }
    let name = &function.name;
    let docs = function_docs(input, options);
    Ok(quote! {
        impl #type_name { #methods }

        #(#docs)*
        #[must_use]
        pub fn #name(#(#parameter_list),*) -> #type_name {
            #type_name { #(#values),* }
        }
    })
}

fn field_named<'f>(fields: &[&'f Field], name: &Ident) -> Option<&'f Field> {
    let mut fields = fields.iter().copied();
    fields.find(|field| field.ident.as_ref() == Some(name))
}

fn expand_newtype(
    input: &DeriveInput,
    options: &StructOptions,
    field: &Field,
) -> Result<TokenStream> {
    let type_name = &input.ident;
    let Some(Function { name, arguments }) = &options.function else {
        return Err(Error::new(
            type_name.span(),
            "a struct of one field needs `#[setters(fn name(argument))]`",
        ));
    };
    let argument = arguments
        .first()
        .cloned()
        .unwrap_or_else(|| format_ident!("value"));
    let Conversion { parameter, value } = Conversion::new(&argument, &field.ty);
    let docs = function_docs(input, options);
    Ok(quote! {
        #(#docs)*
        #[must_use]
        pub fn #name(#argument: #parameter) -> #type_name {
            #type_name(#value)
        }
    })
}

/// The first paragraph about the configuration, a link to it, and the example.
fn function_docs(input: &DeriveInput, options: &StructOptions) -> Vec<TokenStream> {
    let mut texts: Vec<String> = Vec::new();
    for line in docs(&input.attrs) {
        // A blank line ends the paragraph.
        match line_text(line) {
            Some(text) if !text.trim().is_empty() => texts.push(text),
            _ => break,
        }
    }
    texts.push(String::new());
    texts.push(format!(" More, and all options: [`{}`].", input.ident));
    if let Some(example) = &options.example {
        let krate = std::env::var("CARGO_CRATE_NAME").unwrap_or_default();
        let example = example.value();
        texts.push(String::new());
        texts.push(" ```".to_owned());
        texts.push(format!(" # use {krate}::*;"));
        texts.push(format!(" let step = {example};"));
        texts.push(" # let _ = step;".to_owned());
        texts.push(" ```".to_owned());
    }
    let attributes = texts.iter().map(|text| quote!(#[doc = #text]));
    attributes.collect()
}

fn line_text(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    let Expr::Lit(ExprLit { lit, .. }) = &pair.value else {
        return None;
    };
    match lit {
        Lit::Str(text) => Some(text.value()),
        _ => None,
    }
}

fn docs(attributes: &[Attribute]) -> Vec<&Attribute> {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("doc"))
        .collect()
}

fn is_skipped(field: &Field) -> bool {
    for attribute in &field.attrs {
        if attribute.path().is_ident("setters")
            && let Ok(word) = attribute.parse_args::<Ident>()
            && word == "skip"
        {
            return true;
        }
    }
    false
}

/// The value that serde takes where the field is left out; the type's default where it has to be given.
fn default_of(field: &Field) -> Result<TokenStream> {
    let mut default = quote!(::core::default::Default::default());
    for attribute in &field.attrs {
        if !attribute.path().is_ident("serde") {
            continue;
        }
        let items = attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)?;
        for item in items {
            if let Meta::NameValue(pair) = &item
                && pair.path.is_ident("default")
                && let Expr::Lit(ExprLit {
                    lit: Lit::Str(path),
                    ..
                }) = &pair.value
            {
                let path: syn::Path = path.parse()?;
                default = quote!(#path());
            }
        }
    }
    Ok(default)
}
