//! A page as the tests read it: its blocks and marks in order, its text without code, and the
//! anchors of its headings.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use regex::Regex;

/// A part of a page that is run, with its line.
#[derive(Debug, PartialEq)]
pub(super) enum Part {
    /// A script in which every command must succeed.
    Script { line: usize, text: String },
    /// One command: its exit code, and its output if the page shows it.
    Command { line: usize, text: String, exit: i32, prints: Vec<String> },
    /// A file that the reader writes.
    File { line: usize, name: String, text: String },
    /// Servers that the page needs.
    Servers(Vec<String>),
}

#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) parts: Vec<Part>,
    /// The reasons of blocks that are not run.
    pub(super) not_run: Vec<String>,
    /// Mistakes in the page's fences and marks.
    pub(super) wrong: Vec<String>,
    /// The lines outside of fences, without inline code.
    pub(super) prose: Vec<(usize, String)>,
    pub(super) anchors: BTreeSet<String>,
}

/// The fence of a block and its words.
struct Fence {
    line: usize,
    indent: usize,
    ticks: usize,
    words: Vec<String>,
    lines: Vec<String>,
}

impl Page {
    pub(super) fn read(text: &str) -> Page {
        let mut page = Page::default();
        let mut fence: Option<Fence> = None;
        let mut mark: Option<(usize, String)> = None;
        let mut not_run: Option<String> = None;
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for (line, text) in text.lines().enumerate().map(|(number, text)| (number + 1, text)) {
            if let Some(open) = &mut fence {
                let ends = text.trim_start().starts_with(&"`".repeat(open.ticks))
                    && text.trim().trim_matches('`').is_empty();
                if !ends {
                    open.lines.push(text.get(open.indent..).unwrap_or(text.trim_start()).to_owned());
                } else if let Some(block) = fence.take() {
                    page.block(block, not_run.take());
                }
                continue;
            }
            if let Some((_, open)) = &mut mark {
                *open += "\n";
                *open += text;
            } else if text.trim_start().starts_with("<!--") {
                mark = Some((line, text.trim_start().to_owned()));
            }
            if let Some((began, whole)) = mark.take_if(|(_, open)| open.contains("-->")) {
                let said = whole.trim_start_matches("<!--").split("-->").next().unwrap_or_default().trim();
                not_run = said.strip_prefix("not run:").map(|why| why.trim().to_owned());
                page.mark(began, said);
                continue;
            }
            if mark.is_some() {
                continue;
            }
            let ticks = text.trim_start().chars().take_while(|c| *c == '`').count();
            if ticks >= 3 {
                let words =
                    text.trim().trim_start_matches('`').split_whitespace().map(str::to_owned).collect();
                let indent = text.len() - text.trim_start().len();
                fence = Some(Fence { line, indent, ticks, words, lines: Vec::new() });
                continue;
            }
            if not_run.is_some() && !text.trim().is_empty() {
                page.wrong.push(format!("{line}: `not run` stands above no block"));
                not_run = None;
            }
            if let Some(title) = text.strip_prefix('#').map(|rest| rest.trim_start_matches('#').trim()) {
                let slug = slug(title);
                let before = seen.entry(slug.clone()).or_default();
                page.anchors.insert(if *before == 0 { slug } else { format!("{slug}-{before}") });
                *before += 1;
            }
            let named = text.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next());
            page.anchors.extend(named.map(str::to_owned));
            page.prose.push((line, without_code(text)));
        }
        if let Some(open) = fence {
            page.wrong.push(format!("{}: the block does not end", open.line));
        }
        page
    }

    fn mark(&mut self, line: usize, said: &str) {
        if let Some(commands) = said.strip_prefix("run:") {
            self.parts.push(Part::Script { line, text: commands.trim().to_owned() });
        } else if let Some(names) = said.strip_prefix("servers:") {
            self.parts.push(Part::Servers(names.split_whitespace().map(str::to_owned).collect()));
        } else if said.strip_prefix("not run:").is_some_and(|why| why.trim().is_empty()) {
            self.wrong.push(format!("{line}: `not run` says why"));
        }
    }

    fn block(&mut self, fence: Fence, not_run: Option<String>) {
        let Fence { line, words, lines, .. } = fence;
        let Some(kind) = words.first() else {
            let command = lines.iter().find(|line| line.split_whitespace().next().is_some_and(is_program));
            let wrong = |command| format!("{line}: a block with commands is `sh` or `console`: {command}");
            self.wrong.extend(command.map(wrong));
            return;
        };
        let named = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let exit: i32 = named("exit").and_then(|code| code.parse().ok()).unwrap_or(0);
        match (kind.as_str(), not_run) {
            ("sh" | "console" | "bash" | "shell", Some(why)) => self.not_run.push(why),
            ("sh", None) if exit == 0 => {
                let (line, text) = (line + 1, lines.join("\n"));
                self.parts.push(Part::Script { line, text });
            }
            ("sh", None) => self.parts.push(Part::Command {
                line: line + 1,
                text: lines.join("\n"),
                exit,
                prints: Vec::new(),
            }),
            ("console", None) => self.commands(line, &lines, exit),
            ("bash" | "shell", None) => self.wrong.push(format!("{line}: a script is `sh`")),
            _ => {
                if let Some(name) = named("file") {
                    let (name, text) = (name.to_owned(), lines.join("\n") + "\n");
                    self.parts.push(Part::File { line, name, text });
                }
            }
        }
    }

    fn commands(&mut self, fence: usize, lines: &[String], exit: i32) {
        let mut found: Vec<Part> = Vec::new();
        for (number, text) in lines.iter().enumerate() {
            let line = fence + 1 + number;
            if let Some(command) = text.strip_prefix("$ ") {
                let (text, prints) = (command.to_owned(), Vec::new());
                found.push(Part::Command { line, text, exit: 0, prints });
                continue;
            }
            let Some(Part::Command { text: command, prints, .. }) = found.last_mut() else {
                self.wrong.push(format!("{line}: a `console` block begins with a command, behind `$ `"));
                return;
            };
            match text.strip_prefix("> ").or((text == ">").then_some("")) {
                Some(more) if prints.is_empty() => {
                    *command += "\n";
                    *command += more;
                }
                _ => prints.push(text.clone()),
            }
        }
        match found.last_mut() {
            Some(Part::Command { exit: last, .. }) => *last = exit,
            _ => self.wrong.push(format!("{fence}: the block has no command, which is behind `$ `")),
        }
        self.parts.append(&mut found);
    }
}

/// Returns whether a line that begins with this word is a shell command.
fn is_program(word: &str) -> bool {
    const PROGRAMS: [&str; 26] = [
        "$",
        "apt-get",
        "cargo",
        "cd",
        "cp",
        "curl",
        "docker",
        "export",
        "git",
        "install",
        "kill",
        "mkdir",
        "nats",
        "nats-server",
        "npm",
        "openssl",
        "pip",
        "podman",
        "python3",
        "redis-cli",
        "set",
        "skopeo",
        "sudo",
        "systemctl",
        "tar",
        "trellis",
    ];
    PROGRAMS.contains(&word) || word.starts_with("scripts/") || word.starts_with("./")
}

/// The anchor that GitHub and mdBook give a heading; a link is replaced by its text.
fn slug(title: &str) -> String {
    static LINK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\[([^\]]*)\]\([^)]*\)").unwrap());
    let kept = LINK.replace_all(title, "$1").to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || *c == '_' || *c == '-' || *c == ' ');
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// A line without its parts in backticks.
fn without_code(text: &str) -> String {
    let outside = text.split('`').enumerate().filter(|(number, _)| number % 2 == 0);
    // A link whose text is code stays a link.
    outside.map(|(_, part)| part).collect::<Vec<_>>().join("·")
}

/// Returns whether the output of a command matches the page.
pub(super) fn shows(expected: &[String], printed: &str) -> bool {
    let spaced = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected: Vec<String> = expected.iter().map(|line| spaced(line)).collect();
    let printed: Vec<String> = printed.lines().map(spaced).collect();
    let trimmed =
        |lines: &[String]| lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    let (expected, printed) = (&expected[..trimmed(&expected)], &printed[..trimmed(&printed)]);
    lines_match(expected, printed)
}

fn lines_match(expected: &[String], printed: &[String]) -> bool {
    match expected.split_first() {
        None => printed.is_empty(),
        Some((line, rest)) if line == "…" => {
            (0..=printed.len()).any(|skipped| lines_match(rest, &printed[skipped..]))
        }
        Some((line, rest)) => printed
            .split_first()
            .is_some_and(|(first, more)| line_matches(line, first) && lines_match(rest, more)),
    }
}

fn line_matches(expected: &str, printed: &str) -> bool {
    let parts: Vec<&str> = expected.split('…').map(str::trim).collect();
    let [first, middle @ .., last] = parts.as_slice() else { return expected == printed };
    let Some(rest) = printed.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else {
        return false;
    };
    let found = middle.iter().try_fold(rest, |rest, part| rest.split_once(part).map(|(_, rest)| rest));
    found.is_some()
}

#[test]
fn a_page_is_read_as_the_convention_says() {
    let page = Page::read(
        "# A `b` page\n\n<!-- servers: nats -->\n```sh\none\ntwo\n```\n<!-- run: wait\nmore -->\n```console exit=3\n$ first\nshown …\n\
         $ second \\\n> on\n```\n  ```yaml file=x.yaml\n  a: 1\n  ```\n<!-- not run: no key -->\n```sh\nnever\n```\n## A b page\n`[no](link)` [a](b)\n",
    );
    let command = |line, text: &str, exit, prints: &[&str]| Part::Command {
        line,
        text: text.into(),
        exit,
        prints: prints.iter().map(|line| (*line).to_owned()).collect(),
    };
    let expected = [
        Part::Servers(vec!["nats".into()]),
        Part::Script { line: 5, text: "one\ntwo".into() },
        Part::Script { line: 8, text: "wait\nmore".into() },
        command(11, "first", 0, &["shown …"]),
        command(13, "second \\\non", 3, &[]),
        Part::File { line: 16, name: "x.yaml".into(), text: "a: 1\n".into() },
    ];
    assert_eq!(page.parts, expected);
    assert_eq!(page.not_run, ["no key"]);
    assert!(page.wrong.is_empty(), "{:?}", page.wrong);
    assert!(page.anchors.contains("a-b-page") && page.anchors.contains("a-b-page-1"), "{:?}", page.anchors);
    assert!(Page::read("```\n├─ drawn\n```").wrong.is_empty());
    for wrong in [
        "```\n$ plain\n```",
        "```\n├─ drawn\ntrellis run\n```",
        "```console\nno prompt\n```",
        "```bash\nx\n```",
        "<!-- not run: -->\n```sh\nx\n```",
        "```sh\nx",
    ] {
        assert_eq!(Page::read(wrong).wrong.len(), 1, "{wrong}");
    }
}

#[test]
fn shown_commands_are_compared() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    for (expected, printed, same) in [
        ("a … c", "a   b c\n", true),
        ("a … c", "a b d\n", false),
        ("a …", "a\n", true),
        ("a … b … c", "a x b y c\n", true),
        ("a … b … c", "a x c\n", false),
        ("a\n…\nz", "a\nb\nc\nz\n", true),
        ("a\n…", "a\n", true),
        ("a", "a\nb\n", false),
        ("…\nb", "a\nb\nc\n", false),
        ("$0.1 (x)", "$0.1 (x)", true),
    ] {
        assert_eq!(shows(&lines(expected), printed), same, "{expected:?} {printed:?}");
    }
}
