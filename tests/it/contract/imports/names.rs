//! Every path that a file names, and the file that defines what it leads to.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, ImplItemFn, Item, ItemFn, ItemMod, ItemUse, Macro, Meta, PatIdent, Path, TraitItemFn,
    visit::{self, Visit},
};

use super::{
    Imports,
    module_tree::{Crate, Named, attributes, is_facade, is_test, leaves},
};

pub(super) fn imports(parsed: &Crate) -> Imports {
    let mut imports = Imports::new();
    for (number, file) in parsed.files.iter().enumerate() {
        let mut names =
            Names { parsed, file: number, module: file.module, variables: Vec::new(), imports: &mut imports };
        names.visit_file(&file.syntax);
    }
    imports
}

struct Names<'a> {
    parsed: &'a Crate,
    file: usize,
    module: usize,
    /// The variables of each function around the place we are at: they hide functions of the same name.
    variables: Vec<BTreeSet<String>>,
    imports: &'a mut Imports,
}

impl Names<'_> {
    fn record(&mut self, path: &[String]) {
        if let [name] = path
            && self.variables.iter().any(|variables| variables.contains(name))
        {
            return;
        }
        for named in self.parsed.resolve(self.module, path) {
            if let Named::Item { file, name } = named
                && file != self.file
            {
                let ends = (self.parsed.files[self.file].path.clone(), self.parsed.files[file].path.clone());
                self.imports.entry(ends).or_default().insert(name);
            }
        }
    }

    /// The paths in the arguments of a macro or an attribute, which `syn` leaves as they are.
    fn record_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => self.record_tokens(group.stream()),
                TokenTree::Ident(word) => {
                    let after_dot = at > 0 && is(&tokens[at - 1], '.');
                    let mut path = vec![word.to_string()];
                    while let [colon, second, TokenTree::Ident(word), ..] = &tokens[at + 1..]
                        && is(colon, ':')
                        && is(second, ':')
                    {
                        path.push(word.to_string());
                        at += 3;
                    }
                    if !after_dot {
                        self.record(&path);
                    }
                }
                TokenTree::Literal(text) => self.record_quoted(&text.to_string()),
                TokenTree::Punct(_) => {}
            }
            at += 1;
        }
    }

    /// A path in quotes, as in `#[serde(with = "crate::time")]`.
    fn record_quoted(&mut self, literal: &str) {
        let text = literal.trim_matches('"');
        if text.contains("::")
            && let Ok(path) = syn::parse_str::<Path>(text)
        {
            self.visit_path(&path);
        }
    }

    fn within(&mut self, variables: BTreeSet<String>, visit: impl FnOnce(&mut Self)) {
        self.variables.push(variables);
        visit(self);
        self.variables.pop();
    }
}

fn is(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let outside = self.module;
        if let (Some((_, items)), Some(child)) =
            (&item.content, self.parsed.child(outside, &item.ident.to_string()))
        {
            self.module = child;
            items.iter().for_each(|item| self.visit_item(item));
            self.module = outside;
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !is_facade(&item.vis) && item.leading_colon.is_none() {
            leaves(&item.tree).iter().for_each(|leaf| self.record(&leaf.path));
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if path.leading_colon.is_none() {
            let words: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.record(&words);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invoked: &'ast Macro) {
        self.visit_path(&invoked.path);
        self.record_tokens(invoked.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.record_tokens(list.tokens.clone());
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        let variables = Variables::of(|found| found.visit_item_fn(function));
        self.within(variables, |names| visit::visit_item_fn(names, function));
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        let variables = Variables::of(|found| found.visit_impl_item_fn(function));
        self.within(variables, |names| visit::visit_impl_item_fn(names, function));
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        let variables = Variables::of(|found| found.visit_trait_item_fn(function));
        self.within(variables, |names| visit::visit_trait_item_fn(names, function));
    }
}

/// The names that patterns of a function bind.
struct Variables(BTreeSet<String>);

impl Variables {
    fn of(visit: impl FnOnce(&mut Self)) -> BTreeSet<String> {
        let mut found = Variables(BTreeSet::new());
        visit(&mut found);
        found.0
    }
}

impl<'ast> Visit<'ast> for Variables {
    fn visit_pat_ident(&mut self, pattern: &'ast PatIdent) {
        self.0.insert(pattern.ident.to_string());
        visit::visit_pat_ident(self, pattern);
    }
}
