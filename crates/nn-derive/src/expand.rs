//! From the tokens of a struct to its implementation of `ModuleFields`.

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Data, DeriveInput, Error, Field, Generics, Ident, Index, LitStr, Member, Path, Result,
    parse_quote,
};

use crate::attribute::{FieldAttribute, StructAttribute};

/// The implementation for the struct in `input`. `home` is the path of the traits unless an attribute names another.
///
/// # Errors
/// `input` is an enum or a union, or an attribute is wrong; the error's span is where.
pub(crate) fn expand(input: TokenStream, home: Path) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(input)?;
    let fields = match &input.data {
        Data::Struct(data) => &data.fields,
        Data::Enum(data) => return Err(not_a_struct("an enum", data.enum_token.span())),
        Data::Union(data) => return Err(not_a_struct("a union", data.union_token.span())),
    };
    let krate = StructAttribute::parse(&input.attrs, home)?.krate;

    let mut visited: Vec<Visited> = Vec::new();
    for (position, field) in fields.iter().enumerate() {
        let attribute = FieldAttribute::parse(&field.attrs)?;
        if attribute.skip {
            continue;
        }
        let next = Visited::new(position, field, attribute.rename);
        if visited
            .iter()
            .any(|earlier| earlier.name.value() == next.name.value())
        {
            let text = format!(
                "two fields are named {:?}, rename one of them",
                next.name.value()
            );
            return Err(Error::new(next.name.span(), text));
        }
        visited.push(next);
    }

    let generics = with_field_bounds(input.generics, &visited, &krate);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let ident = &input.ident;
    let type_name = ident.unraw().to_string();
    let visits = visited.iter().map(|Visited { member, name, field }| {
        // The span of the type, so that "is not a Field" is reported there.
        quote_spanned! { field.ty.span() => #krate::Field::visit(&self.#member, #name, visitor); }
    });
    let visitor = if visited.is_empty() {
        quote!(_visitor)
    } else {
        quote!(visitor)
    };
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #krate::ModuleFields for #ident #type_generics #where_clause {
            fn visit_fields(&self, #visitor: &mut dyn #krate::FieldVisitor) {
                #(#visits)*
            }

            fn type_name(&self) -> &'static str {
                #type_name
            }
        }
    })
}

/// A field that is not skipped.
struct Visited<'a> {
    member: Member,
    name: LitStr,
    field: &'a Field,
}

impl<'a> Visited<'a> {
    fn new(position: usize, field: &'a Field, rename: Option<LitStr>) -> Self {
        let (member, name) = match &field.ident {
            Some(ident) => (Member::Named(ident.clone()), ident.unraw().to_string()),
            None => (
                Member::Unnamed(Index {
                    index: position as u32,
                    span: field.ty.span(),
                }),
                position.to_string(),
            ),
        };
        let name = rename.unwrap_or_else(|| LitStr::new(&name, field.span()));
        Self {
            member,
            name,
            field,
        }
    }
}

fn not_a_struct(what: &str, span: proc_macro2::Span) -> Error {
    let text = format!(
        "Module can be derived for a struct, not for {what}: its fields would depend on the variant; put the choice \
         into a struct's field, or implement ModuleFields by hand"
    );
    Error::new(span, text)
}

/// The struct's generics, with `T: Field` for each type parameter that a visited field's type mentions.
fn with_field_bounds(mut generics: Generics, visited: &[Visited], krate: &Path) -> Generics {
    let parameters: Vec<Ident> = generics
        .type_params()
        .map(|parameter| parameter.ident.clone())
        .collect();
    for parameter in parameters {
        if visited
            .iter()
            .any(|visited| mentions(visited.field.ty.to_token_stream(), &parameter))
        {
            generics
                .make_where_clause()
                .predicates
                .push(parse_quote!(#parameter: #krate::Field));
        }
    }
    generics
}

fn mentions(tokens: TokenStream, parameter: &Ident) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == *parameter,
        TokenTree::Group(group) => mentions(group.stream(), parameter),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nn() -> Path {
        parse_quote!(::fireclay_nn)
    }

    /// Compares as tokens, so that spaces do not matter.
    fn assert_expands(input: TokenStream, expected: TokenStream) {
        assert_eq!(
            expand(input, nn()).unwrap().to_string(),
            expected.to_string()
        );
    }

    fn error_of(input: &str) -> String {
        expand(input.parse().unwrap(), nn())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn named_fields_are_visited_in_order() {
        assert_expands(
            quote! { struct Net { conv1: Conv2d, #[module(skip)] seen: usize, #[module(rename = "weight")] w: Tensor, r#type: Linear } },
            quote! {
                #[automatically_derived]
                impl ::fireclay_nn::ModuleFields for Net {
                    fn visit_fields(&self, visitor: &mut dyn ::fireclay_nn::FieldVisitor) {
                        ::fireclay_nn::Field::visit(&self.conv1, "conv1", visitor);
                        ::fireclay_nn::Field::visit(&self.w, "weight", visitor);
                        ::fireclay_nn::Field::visit(&self.r#type, "type", visitor);
                    }

                    fn type_name(&self) -> &'static str { "Net" }
                }
            },
        );
    }

    #[test]
    fn a_tuple_struct_is_visited_by_position_under_the_given_path() {
        assert_expands(
            quote! { #[module(crate = "fireclay::nn")] struct Pair(Linear, #[module(skip)] f64, Linear); },
            quote! {
                #[automatically_derived]
                impl fireclay::nn::ModuleFields for Pair {
                    fn visit_fields(&self, visitor: &mut dyn fireclay::nn::FieldVisitor) {
                        fireclay::nn::Field::visit(&self.0, "0", visitor);
                        fireclay::nn::Field::visit(&self.2, "2", visitor);
                    }

                    fn type_name(&self) -> &'static str { "Pair" }
                }
            },
        );
    }

    #[test]
    fn only_parameters_of_visited_fields_are_bound() {
        let output = expand(
            quote! {
                struct Wrap<'a, T: Clone, U, V, const N: usize> where V: Copy {
                    inner: [Option<T>; N], #[module(skip)] other: &'a U, marker: Marker<(u8, V)>
                }
            },
            nn(),
        );
        let expected = quote! {
            impl<'a, T: Clone, U, V, const N: usize> ::fireclay_nn::ModuleFields for Wrap<'a, T, U, V, N>
            where V: Copy, T: ::fireclay_nn::Field, V: ::fireclay_nn::Field
        };
        let output = output.unwrap().to_string();
        assert!(output.contains(&expected.to_string()), "{output}");
    }

    #[test]
    fn enums_and_unions_are_refused() {
        let text = error_of("enum Either { A(Linear), B }");
        assert!(
            text.contains("not for an enum") && text.contains("by hand"),
            "{text}"
        );
        let text = error_of("union Both { a: u8, b: u8 }");
        assert!(text.contains("not for a union"), "{text}");
    }

    #[test]
    fn wrong_attributes_are_refused() {
        for (input, expected) in [
            (
                "struct N { #[module(skipped)] a: T }",
                "expected `skip` or `rename",
            ),
            ("#[module(path = \"x\")] struct N;", "expected `crate = "),
            (
                "#[module(crate = \"a\", crate = \"b\")] struct N;",
                "given twice",
            ),
            (
                "struct N { #[module(rename = \"a.b\")] a: T }",
                "has no dot",
            ),
            ("struct N { #[module(rename = \"\")] a: T }", "not empty"),
            (
                "struct N { #[module(skip, rename = \"b\")] a: T }",
                "remove `skip` or `rename`",
            ),
            (
                "struct N { #[module(rename = \"b\", rename = \"c\")] a: T }",
                "given twice",
            ),
            (
                "struct N { a: T, #[module(rename = \"a\")] b: T }",
                "two fields are named \"a\"",
            ),
        ] {
            let text = error_of(input);
            assert!(text.contains(expected), "{input}: {text}");
        }
    }
}
