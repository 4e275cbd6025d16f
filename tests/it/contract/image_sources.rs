//! The build stage of the Dockerfile gets all sources that `cargo build --package trellis` reads.
//! The test copies only the files that `.dockerignore` lets through and a COPY names to an empty
//! directory, and checks that directory. It needs no Docker.

use std::{collections::BTreeSet, fs, path::Path};

use proc_macro2::{TokenStream, TokenTree};
use regex::Regex;
use serde_json::Value;
use trellis_tests::directory::Directory;

use super::{
    boundaries::sources,
    deploy::{file, root},
    supply_chain::metadata,
};

/// A line of `.dockerignore`: it matches a path and everything beneath it.
struct Pattern {
    text: String,
    is_exception: bool,
    regex: Regex,
}

impl Pattern {
    fn read(line: &str) -> Pattern {
        let (is_exception, text) = line.strip_prefix('!').map_or((false, line), |text| (true, text));
        assert!(!text.contains(['[', '\\']), ".dockerignore: this test can't read `{line}`");
        let text = text.trim_matches('/').to_owned();
        let path = regex::escape(&text)
            .replace(r"\*\*/", "(.*/)?")
            .replace(r"\*\*", ".*")
            .replace(r"\*", "[^/]*")
            .replace(r"\?", "[^/]");
        let regex = Regex::new(&format!("^{path}(/.*)?$")).unwrap();
        Pattern { text, is_exception, regex }
    }
}

/// The lines of `.dockerignore`. The last line that matches a path decides.
struct Ignored(Vec<Pattern>);

impl Ignored {
    fn read(text: &str) -> Ignored {
        let lines = text.lines().filter(|line| !line.starts_with('#')).map(str::trim);
        Ignored(lines.filter(|line| !line.is_empty()).map(Pattern::read).collect())
    }

    fn has(&self, path: &str) -> bool {
        self.0
            .iter()
            .rfind(|pattern| pattern.regex.is_match(path))
            .is_some_and(|pattern| !pattern.is_exception)
    }

    /// Returns whether a file in this directory may be sent. Skipping `target` saves a long walk.
    fn may_send_from(&self, directory: &str) -> bool {
        let beneath = format!("{directory}/");
        let mut exceptions = self.0.iter().filter(|pattern| pattern.is_exception);
        !self.has(directory)
            || exceptions
                .any(|exception| exception.text.starts_with(&beneath) || exception.text.contains('*'))
    }

    /// The files beneath a directory that are sent to the build, as paths from the root of the
    /// repository.
    fn sent(&self, directory: &str, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(root().join(directory)).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            let path = if directory.is_empty() { name } else { format!("{directory}/{name}") };
            if !entry.file_type().unwrap().is_dir() {
                found.extend((!self.has(&path)).then_some(path));
            } else if self.may_send_from(&path) {
                self.sent(&path, found);
            }
        }
    }
}

/// An instruction `COPY a b c/` from the repository into the build stage.
#[derive(Debug, PartialEq)]
struct Copy {
    sources: Vec<String>,
    target: String,
}

impl Copy {
    fn read(arguments: &str) -> Copy {
        let mut words: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        let readable =
            |word: &String| !word.starts_with(['-', '/', '[', '<', '"']) && !word.contains(['*', '?', '$']);
        assert!(words.len() > 1 && words.iter().all(readable), "this test can't read `COPY {arguments}`");
        let target = words.pop().unwrap();
        Copy { sources: words, target }
    }

    /// Each copied file, with its path in the build stage. Docker copies the content of a
    /// directory.
    fn files(&self, sent: &BTreeSet<String>) -> Vec<(String, String)> {
        let plain = |path: &str| match path.trim_start_matches("./").trim_end_matches('/') {
            "." => String::new(),
            path => path.to_owned(),
        };
        let (mut copied, target) = (Vec::new(), plain(&self.target));
        let is_directory = target.is_empty() || self.target.ends_with('/');
        for source in &self.sources {
            let from = plain(source);
            for path in sent {
                let place = match Path::new(path).strip_prefix(&from) {
                    Err(_) => continue,
                    Ok(rest) if rest.as_os_str().is_empty() && is_directory => {
                        Path::new(&target).join(Path::new(path).file_name().unwrap())
                    }
                    Ok(rest) if rest.as_os_str().is_empty() => Path::new(&target).to_owned(),
                    Ok(rest) => Path::new(&target).join(rest),
                };
                copied.push((path.clone(), place.into_os_string().into_string().unwrap()));
            }
            let has_any = copied.iter().any(|(path, _)| Path::new(path).starts_with(&from));
            assert!(has_any, "COPY {source}: .dockerignore excludes all of its files");
        }
        copied
    }
}

/// The instructions of a stage of the Dockerfile, each on one line.
fn instructions(dockerfile: &str, stage: &str) -> Vec<String> {
    let lines: Vec<&str> = dockerfile.lines().map(str::trim).filter(|line| !line.starts_with('#')).collect();
    let joined = lines.join("\n").replace("\\\n", " ");
    let begin = format!(" AS {stage}");
    let stage =
        joined.lines().skip_while(|line| !(line.starts_with("FROM ") && line.ends_with(&begin))).skip(1);
    stage.take_while(|line| !line.starts_with("FROM ")).map(str::to_owned).collect()
}

fn copies(dockerfile: &str) -> Vec<Copy> {
    let build = instructions(dockerfile, "build");
    assert!(!build.iter().any(|line| line.starts_with("ADD ")), "this test can't read ADD");
    let copies = build.iter().filter_map(|line| line.strip_prefix("COPY "));
    copies.filter(|arguments| !arguments.starts_with("--from")).map(Copy::read).collect()
}

/// The target of an `include_str!` or similar in a Rust source: a path beside the source, or one
/// from the folder of its package.
#[derive(Debug, PartialEq)]
enum Included {
    Beside(String),
    InPackage(String),
}

fn included(tokens: TokenStream, found: &mut Vec<Included>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else { continue };
        let called: String = tokens[at.saturating_sub(2)..at].iter().map(ToString::to_string).collect();
        if !["include!", "include_str!", "include_bytes!"].contains(&called.as_str()) {
            included(group.stream(), found);
            continue;
        }
        let arguments = group.to_string();
        let texts: Vec<&str> = arguments.split('"').skip(1).step_by(2).collect();
        found.push(match texts.as_slice() {
            [path] => Included::Beside((*path).to_owned()),
            ["CARGO_MANIFEST_DIR", path] => Included::InPackage(path.trim_start_matches('/').to_owned()),
            _ => panic!("this test can't read {called}{arguments}"),
        });
    }
}

fn ours(metadata: &Value) -> Vec<&Value> {
    let packages = metadata["packages"].as_array().unwrap();
    packages.iter().filter(|package| package["source"].is_null()).collect()
}

fn from_root(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned()
}

/// The root file of each target of the workspace. Cargo reads the manifests of all members before
/// it builds one.
fn targets(metadata: &Value) -> impl Iterator<Item = String> {
    let targets = ours(metadata).into_iter().flat_map(|package| package["targets"].as_array().unwrap());
    targets.map(|target| from_root(Path::new(target["src_path"].as_str().unwrap())))
}

/// The folders of the packages that `trellis` is built from.
fn needed(metadata: &Value) -> Vec<String> {
    let ours = ours(metadata);
    let mut names = vec!["trellis"];
    let mut folders = Vec::new();
    while let Some(name) = names.get(folders.len()) {
        let package = ours.iter().find(|package| package["name"] == *name).unwrap();
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        folders.push(from_root(manifest.parent().unwrap()));
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap();
            if dependency["kind"] != "dev" && dependency["path"].is_string() && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    folders
}

/// The sources of a package and the files that they include, as paths from the root of the
/// repository.
fn compiled(package: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (path, text) in sources(package) {
        let source = from_root(&path);
        if !source.starts_with(&format!("{package}/src/")) && source != format!("{package}/build.rs") {
            continue;
        }
        let mut files = Vec::new();
        included(text.parse().unwrap(), &mut files);
        found.insert(source);
        found.extend(files.iter().map(|file| match file {
            Included::Beside(file) => from_root(&path.with_file_name(file)),
            Included::InPackage(file) => from_root(&root().join(package).join(file)),
        }));
    }
    found
}

#[test]
fn the_image_is_built_from_a_whole_workspace_with_all_that_it_includes() {
    let directory = Directory::fresh();
    let mut sent = BTreeSet::new();
    Ignored::read(&file(".dockerignore")).sent("", &mut sent);
    let mut there = BTreeSet::new();
    for (path, place) in copies(&file("Dockerfile")).iter().flat_map(|copy| copy.files(&sent)) {
        let target = directory.path().join(&place);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(root().join(path), target).unwrap();
        there.insert(place);
    }
    // It fails if a member or its library is missing, but silently omits other missing targets.
    metadata(directory.path());
    let workspace = metadata(&root());
    let packages = needed(&workspace);
    assert!(packages.len() > 1, "{packages:?}");
    let needed: BTreeSet<String> =
        targets(&workspace).chain(packages.iter().flat_map(|package| compiled(package))).collect();
    let missing: Vec<&String> = needed.difference(&there).collect();
    assert!(missing.is_empty(), "the image is built without {missing:?}");
}

/// Files that a RUN leaves in a cache mount are not part of a layer.
#[test]
fn the_binary_is_copied_from_a_layer_of_the_image() {
    let dockerfile = file("Dockerfile");
    let mounts = instructions(&dockerfile, "build");
    let mounts =
        mounts.iter().flat_map(|line| line.split([' ', ',']).filter_map(|word| word.strip_prefix("target=")));
    let mounts: Vec<&str> = mounts.collect();
    let copied = dockerfile.lines().filter_map(|line| line.strip_prefix("COPY --from=build "));
    let copied: Vec<&str> = copied.filter_map(|arguments| arguments.split(' ').next()).collect();
    assert!(mounts.len() == 2 && copied.len() == 2, "{mounts:?} {copied:?}");
    for path in copied {
        assert!(!mounts.iter().any(|mount| Path::new(path).starts_with(mount)), "{path} is in a cache mount");
        let ends = |line: &String| line.starts_with("RUN ") && line.ends_with(&format!(" {path}"));
        assert!(instructions(&dockerfile, "build").iter().any(ends), "no RUN copies the binary to {path}");
    }
}

#[test]
fn the_files_of_docker_are_read_as_docker_reads_them() {
    let ignored = Ignored::read("# all\n*\n\n!/a/\n!b\na/target\n**/*.log\n!a/deep/kept.log\nb/?.rs\n");
    for (path, is_ignored) in [
        ("c", true),
        ("a/one.rs", false),
        ("a/deep/two.rs", false),
        ("a/target/x", true),
        ("a/targets", false),
        ("a/deep/lost.log", true),
        ("a/deep/kept.log", false),
        ("b/x.rs", true),
        ("b/xy.rs", false),
        ("bc", true),
    ] {
        assert_eq!(ignored.has(path), is_ignored, "{path}");
    }
    assert!(!ignored.may_send_from("c") && ignored.may_send_from("a"));
    assert!(Ignored::read("*\n!c/d").may_send_from("c"));

    let dockerfile = "FROM x AS build\n# COPY no no\nCOPY a \\\n  b ./\nCOPY a/one.rs c/\nCOPY a/one.rs c/two.rs\n\
                      COPY a d\nCOPY . .\nCOPY --from=y /z /z\nFROM y AS last\nCOPY e e\n";
    let sent = BTreeSet::from(["a/one.rs", "a/in/two.rs", "b", "ab"].map(str::to_owned));
    let placed: Vec<String> = copies(dockerfile)
        .iter()
        .map(|copy| copy.files(&sent).into_iter().map(|(_, place)| place).collect::<Vec<_>>().join(" "))
        .collect();
    let expected =
        ["in/two.rs one.rs b", "c/one.rs", "c/two.rs", "d/in/two.rs d/one.rs", "a/in/two.rs a/one.rs ab b"];
    assert_eq!(placed, expected);
}

#[test]
fn a_planted_inclusion_is_found() {
    let mut found = Vec::new();
    let source = r#"
        // include_str!("no")
        const A: &str = concat!(include_str!("a.css"), "include_str!(no)");
        fn b() { let _ = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/b.md")); }
    "#;
    included(source.parse().unwrap(), &mut found);
    assert_eq!(found, [Included::Beside("a.css".into()), Included::InPackage("../docs/b.md".into())]);
}
