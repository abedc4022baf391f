//! Finds the places of a source file that have mutants.

mod operators;
mod values;

use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A place of a source file.
#[derive(Debug)]
pub(crate) struct Place {
    /// The octets that it takes.
    pub(crate) range: Range<usize>,
    /// Its line, from 1.
    pub(crate) line: usize,
    /// The function that it is in.
    pub(crate) function: String,
    /// What its mutants do.
    pub(crate) change: Change,
}

/// The mutants of a place.
#[derive(Debug)]
pub(crate) enum Change {
    /// The expression is another: for each mutant its label and the text.
    Expression(Vec<(String, String)>),
    /// The guard of a `match` arm is true, or false.
    Guard,
    /// The arm whose pattern ends here, which has no guard, does not match.
    Arm,
    /// The function whose body begins here returns one of these values at once.
    Return(Vec<String>),
}

/// All places of a file, the outer ones before those within them.
pub(crate) fn places(text: &str) -> syn::Result<Vec<Place>> {
    let mut finder = Finder { text, places: Vec::new(), path: Vec::new(), constant: false };
    finder.visit_file(&syn::parse_file(text)?);
    let mut places = finder.places;
    places.sort_by_key(|place| {
        let Range { start, end } = place.range;
        (start, !place.range.is_empty(), std::cmp::Reverse(end))
    });
    Ok(places)
}

/// The modules in files of their own that a file declares for tests alone.
pub(crate) fn test_modules(text: &str) -> syn::Result<Vec<String>> {
    let items = syn::parse_file(text)?.items;
    let modules = items.into_iter().filter_map(|item| match item {
        syn::Item::Mod(module) if module.content.is_none() && is_test(&module.attrs) => Some(module),
        _ => None,
    });
    Ok(modules.map(|module| module.ident.to_string()).collect())
}

struct Finder<'a> {
    text: &'a str,
    places: Vec<Place>,
    /// Names of the type and the function.
    path: Vec<String>,
    /// Within a function that the compiler may run, which cannot ask the environment.
    constant: bool,
}

impl Finder<'_> {
    fn push(&mut self, range: Range<usize>, at: impl Spanned, change: Change) {
        if !self.constant && !self.path.is_empty() {
            let line = at.span().start().line;
            self.places.push(Place { range, line, function: self.path.join("::"), change });
        }
    }

    fn function(&mut self, signature: &syn::Signature, body: &syn::Block, attributes: &[syn::Attribute]) {
        if is_test(attributes) {
            return;
        }
        self.path.push(signature.ident.to_string());
        let outer = std::mem::replace(&mut self.constant, signature.constness.is_some());
        let values = match &signature.output {
            syn::ReturnType::Default if body.stmts.is_empty() => Vec::new(),
            syn::ReturnType::Default => vec!["()".to_owned()],
            syn::ReturnType::Type(_, of) => values::of(of),
        };
        if !values.is_empty() {
            let begin = body.brace_token.span.open().byte_range().end;
            self.push(begin..begin, &signature.ident, Change::Return(values));
        }
        visit::visit_block(self, body);
        self.constant = outer;
        self.path.pop();
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        let name_of = |path: &syn::Path| path.segments.last().map(|last| last.ident.to_string());
        let of_trait = block.trait_.as_ref().and_then(|(_, path, _)| name_of(path));
        // Words for operators: nothing acts on them.
        let is_text = matches!(of_trait.as_deref(), Some("Debug" | "Display"));
        let syn::Type::Path(of) = &*block.self_ty else { return };
        if is_test(&block.attrs) || is_text {
            return;
        }
        self.path.push(name_of(&of.path).unwrap_or_default());
        visit::visit_item_impl(self, block);
        self.path.pop();
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.function(&function.sig, &function.block, &function.attrs);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.function(&function.sig, &function.block, &function.attrs);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.function(&function.sig, body, &function.attrs);
        }
    }

    // What the compiler computes has no mutants.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}

    fn visit_expr_repeat(&mut self, array: &'ast syn::ExprRepeat) {
        self.visit_expr(&array.expr);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        let [left, right] = [&binary.left, &binary.right].map(|operand| operand.span().byte_range());
        let is_chain =
            matches!(binary.op, syn::BinOp::And(_)) && (has_let(&binary.left) || has_let(&binary.right));
        let others = operators::others(&binary.op);
        if !is_chain && !others.is_empty() {
            let operator = &self.text[binary.op.span().byte_range()];
            let mutants = others.iter().map(|other| {
                let text = format!("{} {other} {}", &self.text[left.clone()], &self.text[right.clone()]);
                (format!("{operator} -> {other}"), text)
            });
            let change = Change::Expression(mutants.collect());
            self.push(left.start..right.end, &binary.op, change);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        if let syn::UnOp::Not(_) = unary.op {
            let operand = &self.text[unary.expr.span().byte_range()];
            let change = Change::Expression(vec![("without !".to_owned(), operand.to_owned())]);
            self.push(unary.span().byte_range(), unary, change);
        }
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_match(&mut self, expression: &'ast syn::ExprMatch) {
        self.visit_expr(&expression.expr);
        let is_wild = |arm: &syn::Arm| arm.guard.is_none() && matches!(arm.pat, syn::Pat::Wild(_));
        // Without such an arm the compiler requires all others.
        let may_miss = expression.arms.iter().any(is_wild);
        for arm in &expression.arms {
            match &arm.guard {
                Some((_, guard)) if !has_let(guard) => {
                    self.push(guard.span().byte_range(), &arm.pat, Change::Guard);
                    self.visit_expr(guard);
                }
                None if may_miss && !is_wild(arm) => {
                    let end = arm.pat.span().byte_range().end;
                    self.push(end..end, &arm.pat, Change::Arm);
                }
                _ => {}
            }
            self.visit_expr(&arm.body);
        }
    }
}

/// True for `#[test]` and `#[cfg(test)]`.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let of_cfg = || attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test");
        attribute.path().is_ident("test") || (attribute.path().is_ident("cfg") && of_cfg())
    })
}

/// True for a chain with `let`, which cannot stand in parentheses.
fn has_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}
