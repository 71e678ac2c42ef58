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
    let options = match input
        .attrs
        .iter()
        .find(|attribute| attribute.path().is_ident("setters"))
    {
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
    let own = &input.ident;
    let arguments = options
        .function
        .as_ref()
        .map(|function| function.arguments.clone())
        .unwrap_or_default();
    for argument in &arguments {
        if !fields
            .iter()
            .any(|field| field.ident.as_ref() == Some(argument))
        {
            return Err(Error::new(
                argument.span(),
                format!("`{own}` has no field `{argument}`"),
            ));
        }
    }
    let is_argument = |field: &Field| {
        field
            .ident
            .as_ref()
            .is_some_and(|name| arguments.contains(name))
    };
    let mut methods = TokenStream::new();
    for field in fields
        .iter()
        .filter(|field| !is_argument(field) && !is_skipped(field))
    {
        let Some(name) = &field.ident else { continue };
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
        return Ok(quote!(impl #own { #methods }));
    };
    let mut parameters = Vec::new();
    for argument in &arguments {
        let Some(field) = fields
            .iter()
            .find(|field| field.ident.as_ref() == Some(argument))
        else {
            continue;
        };
        let Conversion { parameter, value } = Conversion::new(argument, &field.ty);
        parameters.push((quote!(#argument: #parameter), quote!(#argument: #value)));
    }
    let (taken, mut values): (Vec<_>, Vec<_>) = parameters.into_iter().unzip();
    for field in fields.iter().filter(|field| !is_argument(field)) {
        let (Some(name), default) = (&field.ident, default_of(field)?) else {
            continue;
        };
        values.push(quote!(#name: #default));
    }
    let (name, docs) = (&function.name, function_docs(input, options));
    Ok(quote! {
        impl #own { #methods }

        #(#docs)*
        #[must_use]
        pub fn #name(#(#taken),*) -> #own {
            #own { #(#values),* }
        }
    })
}

fn expand_newtype(
    input: &DeriveInput,
    options: &StructOptions,
    field: &Field,
) -> Result<TokenStream> {
    let own = &input.ident;
    let Some(Function { name, arguments }) = &options.function else {
        return Err(Error::new(
            own.span(),
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
        pub fn #name(#argument: #parameter) -> #own {
            #own(#value)
        }
    })
}

/// The first paragraph about the configuration, a link to it, and the example.
fn function_docs(input: &DeriveInput, options: &StructOptions) -> Vec<TokenStream> {
    let lines = docs(&input.attrs)
        .into_iter()
        .map_while(|line| line_text(line).filter(|text| !text.trim().is_empty()));
    let mut texts: Vec<String> = lines.collect();
    texts.push(String::new());
    texts.push(format!(" More, and all options: [`{}`].", input.ident));
    if let Some(example) = &options.example {
        let krate = std::env::var("CARGO_CRATE_NAME").unwrap_or_default();
        let example = example.value();
        texts.extend([
            String::new(),
            " ```".to_owned(),
            format!(" # use {krate}::*;"),
            format!(" let step = {example};"),
        ]);
        texts.extend([" # let _ = step;".to_owned(), " ```".to_owned()]);
    }
    texts
        .into_iter()
        .map(|text| quote!(#[doc = #text]))
        .collect()
}

fn line_text(attribute: &Attribute) -> Option<String> {
    match &attribute.meta {
        Meta::NameValue(pair) => match &pair.value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(text),
                ..
            }) => Some(text.value()),
            _ => None,
        },
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
    let own = field
        .attrs
        .iter()
        .filter(|attribute| attribute.path().is_ident("setters"));
    own.filter_map(|attribute| attribute.parse_args::<Ident>().ok())
        .any(|word| word == "skip")
}

/// What serde takes where the field is left out; the type's default where it has to be given.
fn default_of(field: &Field) -> Result<TokenStream> {
    let mut default = quote!(::core::default::Default::default());
    for attribute in field
        .attrs
        .iter()
        .filter(|attribute| attribute.path().is_ident("serde"))
    {
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
