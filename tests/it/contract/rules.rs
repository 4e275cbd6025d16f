//! Every rule id cited in the repository is listed in `docs/rules.md`, and the test that a row of
//! the page names cites the rule, unless the rule is marked *planned*. Citations are (so that `i64`,
//! `W3C`, `B2B`, `x86`, a hex digest or the thread id `t1` are not):
//! - a whole word of one of the letters B I W X G S N and a number, anywhere but in Markdown code;
//! - `b1`, `t5`, `f05` (small letter, a fault has two digits) only in comments, in prose, and at
//!   the beginning of a message (`"t5: …"`), never in code; `f32` and `f64` are types there;
//! - C, L and P only after `section` or `rule`, in a table's cell, or as the rule of a refusal;
//! - the first parts of a test's name and those after `and`: `b8_b10_…`, `f32_…`, `p_…`; `b3` there
//!   is the rule B3.

use std::{collections::BTreeSet, fs, path::Path};

type Ids = BTreeSet<String>;

/// The endings of files that people write. Snapshots and schemas are generated from them.
const ENDINGS: [&str; 7] = ["rs", "md", "toml", "yaml", "yml", "py", "lua"];
/// Primitive types that look like an id.
const TYPES: [&str; 7] = ["i8", "i16", "i32", "i64", "f16", "f32", "f64"];

struct Source {
    path: String,
    text: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        Source { path: path.into(), text: text.into() }
    }
}

struct Test {
    name: String,
    doc: String,
}

fn sources() -> Vec<Source> {
    fn walk(root: &Path, path: &Path, found: &mut Vec<Source>) {
        for entry in fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()) {
            let name = entry.file_name().unwrap().to_string_lossy().into_owned();
            let read = entry.extension().is_some_and(|ending| ENDINGS.iter().any(|wanted| ending == *wanted));
            if entry.is_dir() && !name.starts_with('.') && name != "target" {
                walk(root, &entry, found);
            } else if read && entry.is_file() {
                let shown = entry.strip_prefix(root).unwrap().to_string_lossy();
                found.push(Source::new(&shown, &fs::read_to_string(&entry).unwrap()));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    walk(root, root, &mut found);
    // This file plants ids that do not exist.
    found.retain(|source| !source.path.ends_with("/rules.rs"));
    found
}

/// A row of the page's tables: ``| **B1** | … | `b1_…` |`` or `| **B17** | *planned* … | none yet |`.
struct Rule {
    id: String,
    planned: bool,
    /// The name in the last cell.
    test: String,
}

fn rules(page: &str) -> Vec<Rule> {
    let row = |line: &str| {
        let (id, rest) = line.strip_prefix("| **")?.split_once("** | ")?;
        let (text, test) = rest.strip_suffix(" |")?.rsplit_once(" | ")?;
        let test = test.trim_matches('`').to_owned();
        Some(Rule { id: id.to_owned(), planned: text.starts_with("*planned* "), test })
    };
    page.lines().filter_map(row).collect()
}

/// The letter of an id, if the word is an id: a letter, then a number.
fn letter(word: &str) -> Option<char> {
    let letter = word.chars().next()?;
    let digits = word.strip_prefix(letter)?;
    let numbered = matches!(digits.len(), 1 | 2) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let well_formed = if letter == 'f' { digits.len() == 2 } else { !digits.starts_with('0') };
    (numbered && well_formed).then_some(letter)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(|c: char| !(c.is_alphanumeric() || "_-./".contains(c)));
    parts.map(|word| word.trim_matches(['.', '-'])).filter(|word| !word.is_empty())
}

/// Ids with a capital letter, anywhere.
fn capitals(text: &str) -> impl Iterator<Item = String> {
    words(text)
        .filter(|word| letter(word).is_some_and(|letter| "BIWXGSN".contains(letter)))
        .map(str::to_owned)
}

/// Ids of invariants and faults, in a text for people.
fn small(text: &str) -> impl Iterator<Item = String> {
    let found = words(text).filter(|word| !TYPES.contains(word));
    found.filter(|word| letter(word).is_some_and(|letter| "btf".contains(letter))).map(str::to_owned)
}

/// Sections that are a rule themselves: after `section` or `rule`, in a cell, or in a refusal.
fn sections(line: &str) -> Vec<String> {
    let refusal = line.contains("Refusal::") || line.contains("rule:") || line.contains("\"rule\"");
    let is_cited = |letter: &str| {
        let named = ["ection ", "ule "].iter().any(|before| {
            let start = format!("{before}{letter}");
            line.split(&start)
                .skip(1)
                .any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '\''))
        });
        named || line.contains(&format!("| {letter} |")) || refusal && line.contains(&format!("\"{letter}\""))
    };
    ["C", "L", "P"].into_iter().filter(|letter| is_cited(letter)).map(str::to_owned).collect()
}

/// A line of Markdown without its parts in backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// Every id that a source cites, including the names of tests.
fn cited(source: &Source) -> Ids {
    let mut found = Ids::new();
    let mut fenced = false;
    for line in source.text.lines() {
        if source.path.ends_with(".md") {
            fenced ^= line.trim_start().starts_with("```");
            if !fenced {
                let prose = without_code(line);
                found.extend(capitals(&prose).chain(small(&prose)).chain(sections(&prose)));
            }
            continue;
        }
        found.extend(capitals(line).chain(sections(line)));
        let comment =
            ["//", "# ", "-- "].iter().filter_map(|start| line.split_once(start)).map(|(_, said)| said);
        found.extend(comment.flat_map(small));
        // A message that begins with its id; the table of refusals.
        let quoted: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
        let message = quoted.iter().filter_map(|text| Some(text.split_once(": ")?.0));
        found.extend(message.flat_map(|id| small(id).filter(move |found| found == id)));
        if line.contains("Refusal::") {
            found.extend(quoted.iter().flat_map(|text| small(text)));
        }
    }
    found.extend(tests(&source.text).iter().flat_map(|test| named(&test.name)));
    found
}

/// The tests of a Rust source: a function below `#[test]` or `#[tokio::test…]`, and its doc
/// comment.
fn tests(text: &str) -> Vec<Test> {
    let mut found = Vec::new();
    let (mut doc, mut marked) = (String::new(), false);
    for line in text.lines().map(str::trim_start) {
        if let Some(said) = line.strip_prefix("///") {
            doc = format!("{doc}\n{said}");
        } else if line.starts_with("#[") {
            marked |= line.contains("test]") || line.contains("test(");
        } else {
            let name = line.trim_start_matches("async ").strip_prefix("fn ").filter(|_| marked);
            let name = name.and_then(|rest| rest.split(['(', '<']).next());
            found.extend(name.map(|name| Test { name: name.into(), doc: std::mem::take(&mut doc) }));
            (doc, marked) = (String::new(), false);
        }
    }
    found
}

/// The ids at the beginning of a test's name, and numbered ones after `and`: `b8_b10_…`,
/// `g1_parallel_and_t4_…`.
fn named(name: &str) -> Vec<String> {
    let id = |part: &str| match (part, letter(part)) {
        ("c" | "l" | "p", _) => Some(part.to_uppercase()),
        (_, Some('b' | 'i' | 'w' | 'x' | 'g' | 's' | 'n')) if !TYPES.contains(&part) => {
            Some(part.to_uppercase())
        }
        (_, Some('t' | 'f')) => Some(part.to_owned()),
        _ => None,
    };
    let parts: Vec<&str> = name.split('_').collect();
    let first = parts.iter().map_while(|part| id(part));
    let after = parts.windows(2).filter(|pair| pair[0] == "and" && letter(pair[1]).is_some());
    first.chain(after.filter_map(|pair| id(pair[1]))).collect()
}

/// All mistakes between the page and the repository.
fn breaches(page: &str, sources: &[Source]) -> Vec<String> {
    let rules = rules(page);
    let known: Ids = rules.iter().map(|rule| rule.id.clone()).collect();
    let mut wrong: Vec<String> = Vec::new();
    if known.len() < rules.len() {
        wrong.push("an id is twice in docs/rules.md".into());
    }
    let (mut in_names, mut proven) = (Ids::new(), BTreeSet::new());
    for source in sources {
        let unknown = cited(source).into_iter().filter(|id| !known.contains(id));
        wrong.extend(unknown.map(|id| format!("{} cites {id}, which is not in docs/rules.md", source.path)));
        for test in tests(&source.text).into_iter().filter(|_| source.path.ends_with(".rs")) {
            let names = named(&test.name);
            let in_doc = test
                .doc
                .lines()
                .flat_map(|line| capitals(line).chain(small(line)).chain(sections(line)).collect::<Vec<_>>());
            proven.extend(names.iter().cloned().chain(in_doc).map(|id| (id, test.name.clone())));
            in_names.extend(names);
        }
    }
    for Rule { id, planned, test } in rules {
        if planned && in_names.contains(&id) {
            wrong.push(format!("{id} is marked planned, and a test is named after it"));
        } else if !planned && !proven.contains(&(id.clone(), test.clone())) {
            wrong.push(format!("{id} is not marked planned, and no test `{test}` cites it"));
        }
    }
    wrong
}

#[test]
fn every_cited_rule_is_listed_and_every_listed_rule_has_a_test() {
    let sources = sources();
    let page = sources.iter().find(|source| source.path == "docs/rules.md").expect("docs/rules.md");
    assert!(rules(&page.text).len() > 100, "the page can't be read");
    let wrong = breaches(&page.text, &sources);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The finder itself: it finds planted mistakes, and ignores words that only look like an id.
#[test]
fn a_planted_mistake_is_found_and_lookalikes_are_not() {
    let page = "| id | rule | test |\n|---|---|---|\n| **B1** | holds | `b1_f32_adds_up` |\n\
                | **B17** | *planned* later | none yet |\n| **P** | spawning | `b1_f32_adds_up` |\n\
                | **t5** | fenced | `b1_f32_adds_up` |\n| **f32** | usage | `b1_f32_adds_up` |\n";
    let good = "/// t5, section P.\n#[test]\nfn b1_f32_adds_up() {}\n";
    let check = |text: &str| breaches(page, &[Source::new("a.rs", good), Source::new("b.rs", text)]);
    assert_eq!(check(""), Vec::<String>::new());
    // A planned rule may be mentioned beside a working one.
    assert_eq!(check("/// Not B17 yet.\n#[test]\nfn b1_too() {}"), Vec::<String>::new());

    let unknown = |id: &str| vec![format!("b.rs cites {id}, which is not in docs/rules.md")];
    assert_eq!(check("// as B99 says"), unknown("B99"));
    assert_eq!(check("problems.add(\"not run yet (B16)\")"), unknown("B16"));
    assert_eq!(check("format!(\"t9: the log has a gap\")"), unknown("t9"));
    assert_eq!(check("Refusal::Taken { .. } => (\"taken\", \"t3\"),"), unknown("t3"));
    assert_eq!(check("Refusal::Depth { .. } => (\"depth\", \"L\"),"), unknown("L"));
    assert_eq!(check("//! Section C: the store"), unknown("C"));
    assert_eq!(check("#[tokio::test]\nasync fn t5_f05_stopped() {}"), unknown("f05"));
    assert_eq!(check("#[test]\nfn b1_at_once_and_t4_in_order_and_c_too() {}"), unknown("t4"));
    assert_eq!(
        check("#[test]\nfn b17_ceilings_bind() {}"),
        ["B17 is marked planned, and a test is named after it"]
    );
    let without_p = "/// t5\n#[test]\nfn b1_f32_adds_up() {}\n#[test]\nfn p_later() {}";
    assert_eq!(
        breaches(page, &[Source::new("a.rs", without_p)]),
        ["P is not marked planned, and no test `b1_f32_adds_up` cites it"]
    );

    let lookalikes = "let x: (i64, f64) = (1i64, 2.0); // f64 to W3C, B2B on x86-64, gpt-4o, rule Prefix
        let thread_id = \"t1\"; call(\"b7\"); fn f<T1, T2>() {} // 0xB2 at /b9/t2.rs, u8, i32";
    assert_eq!(check(lookalikes), Vec::<String>::new());
    let page_like = [Source::new("a.rs", good), Source::new("b.md", "see `B44`\n```\nB45\n```\n| P | B1 |")];
    assert_eq!(breaches(page, &page_like), Vec::<String>::new());
}
