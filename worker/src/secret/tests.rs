//! Secrets that are read from files, and placeholders for them.

use std::{collections::BTreeMap, path::PathBuf};

use domain::{id::SecretName, wire::Execute};
use serde_json::{Value, json};

use super::{GivenSecrets, Values};
use crate::settings::{Secret, Settings};

/// Secrets in a directory of files, which is removed at the end.
pub(crate) struct Files {
    directory: PathBuf,
    names: Vec<String>,
}

impl Files {
    pub(crate) fn new(secrets: &[(&str, &str)]) -> Self {
        let directory =
            std::env::temp_dir().join(format!("trellis-secrets-{}", host::random::Random::System.id()));
        std::fs::create_dir_all(&directory).unwrap();
        for (name, value) in secrets {
            std::fs::write(directory.join(name), format!(" {value}\n")).unwrap();
        }
        Files { directory, names: secrets.iter().map(|(name, _)| (*name).to_owned()).collect() }
    }

    /// Settings with these secrets for all agents, each changed by `of`.
    pub(crate) fn settings(&self, of: impl Fn(&mut Secret)) -> Settings {
        let secret = |name: &String| {
            let mut secret = Secret {
                file: Some(self.directory.join(name)),
                agents: vec!["*".into()],
                ..Secret::default()
            };
            of(&mut secret);
            (SecretName::new(name).unwrap(), secret)
        };
        let secrets: BTreeMap<SecretName, Secret> = self.names.iter().map(secret).collect();
        Settings { secrets, ..Settings::default() }
    }

    /// A context that may use these secrets.
    pub(crate) fn work(secrets: &[&str]) -> Execute {
        let world = world::World::with_root(json!({ "secrets": secrets }));
        world.work(&world::id("root")).unwrap()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

const TOOL: &str = "server:tool";

fn fill(values: &Values, work: &Execute, tool: &str, arguments: &Value) -> Result<Value, String> {
    GivenSecrets { values, work, tool }.fill_value(arguments)
}

/// proves: a value is inserted once, in texts only, and a placeholder inside of a value is not
/// replaced.
#[test]
fn s8_a_placeholder_is_replaced_once_and_a_value_is_not_read_as_one() {
    let files = Files::new(&[
        ("A_KEY", "first{{secret:B_KEY}}"),
        ("B_KEY", "second-value"),
        ("C_KEY", "third-value"),
    ]);
    let values = Values::read(&files.settings(|secret| secret.tools = vec!["server:*".into()]), &[]);
    let work = Files::work(&["A_KEY", "B_KEY"]);
    let given = json!({"text": "a {{secret:A_KEY}} b {{secret:B_KEY}}", "list": ["{{secret:B_KEY}}", 7, null], "is": true});
    let filled = json!({
        "text": "a first{{secret:B_KEY}} b second-value", "list": ["second-value", 7, null], "is": true,
    });
    assert_eq!(fill(&values, &work, TOOL, &given), Ok(filled));
    let plain = json!({"text": "{{secrets}} {{ name }} secret:A_KEY {secret:A_KEY}"});
    assert_eq!(fill(&values, &work, TOOL, &plain), Ok(plain.clone()), "other texts are unchanged");
    for (text, says) in [
        (
            "{{secret:C_KEY}}",
            "you were not given the secret `C_KEY`\n\nhint: your secrets are `A_KEY`, `B_KEY`",
        ),
        ("{{secret:OTHER}}", "you were not given the secret `OTHER`"),
        ("{{secret:a_key}}", "not a placeholder"),
        ("{{secret:}}", "not a placeholder"),
        ("{{secret:A_KEY", "not a placeholder"),
        ("{{ secret : A_KEY }}", "not a placeholder"),
        ("{{secret:{{secret:A_KEY}}}}", "not a placeholder"),
        ("{{secret:A_KEY}} and {{secret:C_KEY}}", "not given"),
    ] {
        let refused = fill(&values, &work, TOOL, &json!({ "deep": [{ "text": text }] })).unwrap_err();
        assert!(refused.contains(says), "{text}: {refused}");
        assert!(!refused.contains("first") && !refused.contains("third"), "{refused}");
    }
    let refused = fill(&values, &work, TOOL, &json!({"{{secret:A_KEY}}": 1})).unwrap_err();
    assert!(refused.contains("the name of an argument"), "{refused}");
    let refused = fill(&values, &Files::work(&[]), TOOL, &json!("{{secret:A_KEY}}")).unwrap_err();
    assert!(refused.contains("you have no secrets"), "{refused}");
}

#[test]
fn s8_a_tool_that_is_not_listed_for_a_secret_does_not_get_it() {
    let files = Files::new(&[("A_KEY", "first-value")]);
    let work = Files::work(&["A_KEY"]);
    for (tools, tool, is_given) in [
        (&["server:tool"][..], "server:tool", true),
        (&["server:*"], "server:tool", true),
        (&["other:*", "server:to*"], "server:tool", true),
        (&["server:tool"], "server:tool2", false),
        (&["server:*"], "server2:tool", false),
        (&["http.get"], "server:tool", false),
        (&[], "server:tool", false),
    ] {
        let values = Values::read(
            &files.settings(|secret| secret.tools = tools.iter().map(|t| (*t).to_owned()).collect()),
            &[],
        );
        let filled = fill(&values, &work, tool, &json!("{{secret:A_KEY}}"));
        assert_eq!(filled.is_ok(), is_given, "{tools:?} {tool}: {filled:?}");
        if let Err(refused) = filled {
            assert!(
                refused.contains("may not have the secret `A_KEY`") && !refused.contains("value"),
                "{refused}"
            );
        }
    }
}

/// proves: by default no agent has a secret, all reasons are reported at once, and no reason
/// contains a value.
#[test]
fn s8_a_worker_refuses_secrets_that_it_lacks_or_may_not_give() {
    let files =
        Files::new(&[("A_KEY", "first-value"), ("SHORT", "abc"), ("EMPTY", ""), ("D_KEY", "fourth-value")]);
    let mut settings = files.settings(|_| {});
    let of = |settings: &mut Settings, name: &str, agents: &[&str]| {
        settings.secrets.get_mut(name).unwrap().agents = agents.iter().map(|a| (*a).to_owned()).collect();
    };
    of(&mut settings, "D_KEY", &[]);
    let missing = Secret {
        env: Some("TRELLIS_NO_SUCH_VARIABLE".into()),
        agents: vec!["*".into()],
        ..Secret::default()
    };
    settings.secrets.insert(SecretName::new("GONE").unwrap(), missing);
    let work = Files::work(&["A_KEY", "SHORT", "EMPTY", "D_KEY", "GONE", "UNKNOWN"]);
    let refused = Values::read(&settings, &[]).refusal(&work).unwrap();
    for says in [
        "`SHORT`: the file",
        "`EMPTY`: the file",
        "`D_KEY`: the settings of this worker don't list `default`",
        "`GONE`: the environment variable TRELLIS_NO_SUCH_VARIABLE is not set",
        "`UNKNOWN`: the settings of this worker have no such secret",
        "hint: ",
    ] {
        assert!(refused.contains(says), "{says}\nis not in\n{refused}");
    }
    assert!(
        !refused.contains("A_KEY") && !refused.contains("value") && !refused.contains("abc"),
        "{refused}"
    );
    for (agents, fits) in
        [(&["*"][..], true), (&["def*"], true), (&["default"], true), (&["other", "de"], false)]
    {
        of(&mut settings, "A_KEY", agents);
        let refused = Values::read(&settings, &[]).refusal(&Files::work(&["A_KEY"]));
        assert_eq!(refused.is_none(), fits, "{agents:?}");
    }
    let values = Values::read(&settings, &[]);
    assert!(!format!("{values:?}").contains("-value") && format!("{values:?}").contains("(a secret)"));
}

#[test]
fn s8_a_program_gets_a_variable_only_where_the_settings_say_so() {
    let files = Files::new(&[("A_KEY", "first-value"), ("B_KEY", "second-value")]);
    let mut settings = files.settings(|secret| secret.programs = true);
    settings.secrets.get_mut("B_KEY").unwrap().programs = false;
    let values = Values::read(&settings, &[]);
    let given = |secrets: &[&str]| values.environment(&Files::work(secrets));
    assert_eq!(given(&["A_KEY", "B_KEY"]), [("A_KEY".to_owned(), "first-value".to_owned())]);
    assert!(
        given(&["B_KEY"]).is_empty() && given(&[]).is_empty(),
        "a context gets only the secrets that it names"
    );
}

#[test]
fn s8_the_prompt_names_secrets_and_where_they_are_for() {
    let files = Files::new(&[("A_KEY", "first-value"), ("B_KEY", "second-value")]);
    let mut settings = files.settings(|_| {});
    let a = settings.secrets.get_mut("A_KEY").unwrap();
    a.tools = vec!["http.get".into(), "github:*".into()];
    a.hosts = vec!["api.example.org".into()];
    let values = Values::read(&settings, &[]);
    let shown = values.describe(&Files::work(&["A_KEY", "B_KEY"])).unwrap();
    assert!(
        shown.contains("`A_KEY` (for `http.get` to api.example.org, `github:*`); `B_KEY` (for no tool)"),
        "{shown}"
    );
    assert!(shown.contains("{{secret:NAME}}") && !shown.contains("value-"), "{shown}");
    assert_eq!(values.describe(&Files::work(&[])), None);
}

#[test]
fn s8_the_settings_of_secrets_are_checked_all_at_once() {
    let settings: Settings = serde_json::from_value(json!({"secrets": {
        "NEITHER": {},
        "BOTH": {"env": "X", "file": "/x"},
        "TOOLS": {"env": "X", "tools": ["fs.write", "*", "ser*:x", "server:", "server:*", "http.get"]},
        "HOSTS": {"env": "X", "hosts": ["example.org"]},
        "AGENTS": {"env": "X", "agents": ["", "a*b", "a**", "a-*", "*"]},
        "PATH": {"env": "X", "programs": true},
    }}))
    .unwrap();
    let told = settings.check().unwrap_err().to_string();
    let places = [
        "secrets.NEITHER: ",
        "secrets.BOTH: ",
        "secrets.TOOLS.tools[0]: ",
        "secrets.TOOLS.tools[1]: ",
        "secrets.TOOLS.tools[2]: ",
        "secrets.TOOLS.tools[3]: ",
        "secrets.TOOLS.hosts: ",
        "secrets.HOSTS.hosts: ",
        "secrets.AGENTS.agents[0]: ",
        "secrets.AGENTS.agents[1]: ",
        "secrets.AGENTS.agents[2]: ",
        "secrets.PATH.programs: ",
    ];
    for place in places {
        assert!(told.contains(place), "{place}\nis not in\n{told}");
    }
    for good in ["tools[4]", "tools[5]", "agents[3]", "agents[4]"] {
        assert!(!told.contains(good), "{good}: {told}");
    }
    let lower = serde_json::from_value::<Settings>(json!({"secrets": {"lower": {"env": "X"}}}));
    assert!(lower.is_err(), "{lower:?}");
}
