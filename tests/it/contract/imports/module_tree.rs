//! The modules of a crate and the names each of them binds, and where a path leads. Only names and files: no types.

use std::{cell::RefCell, collections::BTreeMap};

use syn::{Attribute, Item, UseTree, Visibility, visit::Visit};

use super::Sources;

pub(super) struct Crate {
    pub(super) files: Vec<File>,
    modules: Vec<Module>,
    /// Re-exports that are being followed: one that leads back to itself is not followed again.
    following: RefCell<Vec<(usize, String, usize)>>,
}

pub(super) struct File {
    pub(super) path: String,
    pub(super) syntax: syn::File,
    pub(super) module: usize,
}

struct Module {
    parent: Option<usize>,
    file: usize,
    bindings: BTreeMap<String, Vec<Binding>>,
    globs: Vec<Vec<String>>,
}

enum Binding {
    Item,
    Module(usize),
    Use(Vec<String>),
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Module(usize),
    Item { file: usize, name: String },
}

impl Crate {
    /// Walks the modules from `lib.rs` or `main.rs`.
    pub(super) fn parse(sources: &Sources) -> Self {
        let root = ["lib.rs", "main.rs"].into_iter().find(|root| sources.contains_key(*root));
        let root = root.expect("a crate has a lib.rs or a main.rs");
        let mut parsed = Crate { files: Vec::new(), modules: Vec::new(), following: RefCell::default() };
        parsed.add_file(sources, root, "", None);
        parsed
    }

    fn add_file(&mut self, sources: &Sources, path: &str, folder: &str, parent: Option<usize>) -> usize {
        let syntax = syn::parse_file(&sources[path]).unwrap_or_else(|error| panic!("{path}: {error}"));
        let file = self.files.len();
        let module = self.modules.len();
        self.files.push(File { path: path.to_owned(), syntax: syntax.clone(), module });
        self.add_module(sources, &syntax.items, folder, parent, file)
    }

    fn add_module(
        &mut self,
        sources: &Sources,
        items: &[Item],
        folder: &str,
        parent: Option<usize>,
        file: usize,
    ) -> usize {
        let module = self.modules.len();
        self.modules.push(Module { parent, file, bindings: BTreeMap::new(), globs: Vec::new() });
        for item in items.iter().filter(|item| !is_test(attributes(item))) {
            if let Item::Mod(declared) = item {
                let name = declared.ident.to_string();
                let below = format!("{folder}{name}/");
                let child = match &declared.content {
                    Some((_, items)) => self.add_module(sources, items, &below, Some(module), file),
                    None => {
                        let places = [format!("{folder}{name}.rs"), format!("{below}mod.rs")];
                        let path = places.iter().find(|path| sources.contains_key(*path));
                        let path = path.unwrap_or_else(|| panic!("no file for `mod {name}` in {folder:?}"));
                        self.add_file(sources, path, &below, Some(module))
                    }
                };
                self.bind(module, name, Binding::Module(child));
                continue;
            }
            for name in defined(item) {
                self.bind(module, name, Binding::Item);
            }
            // Also the `use` inside a function: its names are taken to be known in the whole module.
            let mut uses = Uses::default();
            uses.visit_item(item);
            for leaf in uses.leaves {
                match leaf.name {
                    Some(name) => self.bind(module, name, Binding::Use(leaf.path)),
                    None => self.modules[module].globs.push(leaf.path),
                }
            }
        }
        module
    }

    fn bind(&mut self, module: usize, name: String, binding: Binding) {
        self.modules[module].bindings.entry(name).or_default().push(binding);
    }

    /// The child module of that name.
    pub(super) fn child(&self, module: usize, name: &str) -> Option<usize> {
        self.modules[module].bindings.get(name)?.iter().find_map(|binding| match binding {
            Binding::Module(child) => Some(*child),
            Binding::Item | Binding::Use(_) => None,
        })
    }

    /// All that a path may mean in a module. Empty if it leads out of the crate.
    pub(super) fn resolve(&self, module: usize, path: &[String]) -> Vec<Named> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        let mut found = match first.as_str() {
            "crate" => vec![Named::Module(0)],
            "self" => vec![Named::Module(module)],
            _ => self.look_up(module, first),
        };
        for segment in rest {
            // A path that goes on names a module, also where a function has the same name.
            if found.iter().any(|named| matches!(named, Named::Module(_))) {
                found.retain(|named| matches!(named, Named::Module(_)));
            }
            found = found.into_iter().flat_map(|named| self.step(named, segment)).collect();
        }
        found
    }

    fn step(&self, from: Named, segment: &str) -> Vec<Named> {
        match from {
            Named::Module(module) if segment == "self" => vec![Named::Module(module)],
            Named::Module(module) => self.look_up(module, segment),
            // A variant or an associated item: defined where its type is.
            item @ Named::Item { .. } => vec![item],
        }
    }

    fn look_up(&self, module: usize, name: &str) -> Vec<Named> {
        let here = &self.modules[module];
        if name == "super" {
            return here.parent.map(Named::Module).into_iter().collect();
        }
        let mut found = Vec::new();
        for (number, binding) in here.bindings.get(name).into_iter().flatten().enumerate() {
            match binding {
                Binding::Item => found.push(Named::Item { file: here.file, name: name.to_owned() }),
                Binding::Module(child) => found.push(Named::Module(*child)),
                Binding::Use(path) => {
                    found.extend(
                        self.follow((module, name.to_owned(), number), || self.resolve(module, path)),
                    );
                }
            }
        }
        if found.is_empty() {
            for (number, glob) in here.globs.iter().enumerate() {
                let through = (module, format!("{name} through *"), number);
                found.extend(self.follow(through, || {
                    let modules = self.resolve(module, glob).into_iter();
                    modules
                        .filter(|named| matches!(named, Named::Module(_)))
                        .flat_map(|named| self.step(named, name))
                        .collect()
                }));
            }
        }
        found
    }

    fn follow(&self, through: (usize, String, usize), found: impl FnOnce() -> Vec<Named>) -> Vec<Named> {
        if self.following.borrow().contains(&through) {
            return Vec::new();
        }
        self.following.borrow_mut().push(through);
        let found = found();
        self.following.borrow_mut().pop();
        found
    }
}

/// One name that a `use` brings in; all of a module's if it has no name.
pub(super) struct Leaf {
    pub(super) name: Option<String>,
    pub(super) path: Vec<String>,
}

pub(super) fn leaves(tree: &UseTree) -> Vec<Leaf> {
    fn walk(tree: &UseTree, before: &[String], found: &mut Vec<Leaf>) {
        let with = |name: String| [before, &[name]].concat();
        match tree {
            UseTree::Path(path) => walk(&path.tree, &with(path.ident.to_string()), found),
            UseTree::Group(group) => group.items.iter().for_each(|tree| walk(tree, before, found)),
            UseTree::Glob(_) => found.push(Leaf { name: None, path: before.to_vec() }),
            UseTree::Name(name) if name.ident == "self" => {
                found.push(Leaf { name: before.last().cloned(), path: before.to_vec() });
            }
            UseTree::Name(name) => {
                found.push(Leaf { name: Some(name.ident.to_string()), path: with(name.ident.to_string()) });
            }
            UseTree::Rename(rename) => {
                let path =
                    if rename.ident == "self" { before.to_vec() } else { with(rename.ident.to_string()) };
                found.push(Leaf { name: Some(rename.rename.to_string()), path });
            }
        }
    }
    let mut found = Vec::new();
    walk(tree, &[], &mut found);
    found
}

#[derive(Default)]
struct Uses {
    leaves: Vec<Leaf>,
}

impl<'ast> Visit<'ast> for Uses {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            self.leaves.extend(leaves(&item.tree));
        }
    }
}

pub(super) fn is_facade(visibility: &Visibility) -> bool {
    !matches!(visibility, Visibility::Inherited)
}

/// Whether an item is compiled for tests only.
pub(super) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let condition = attribute.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default();
        attribute.path().is_ident("test") || attribute.path().is_ident("cfg") && condition == "test"
    })
}

pub(super) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The names an item defines. One that a macro of the crate makes is taken from the macro's arguments.
fn defined(item: &Item) -> Vec<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::Macro(item) => match &item.ident {
            Some(name) => name,
            None => return types_in(&item.mac.tokens),
        },
        _ => return Vec::new(),
    };
    vec![name.to_string()]
}

fn types_in(arguments: &proc_macro2::TokenStream) -> Vec<String> {
    let words = arguments.clone().into_iter().filter_map(|token| match token {
        proc_macro2::TokenTree::Ident(word) => Some(word.to_string()),
        _ => None,
    });
    words.filter(|word| word.starts_with(char::is_uppercase)).collect()
}
