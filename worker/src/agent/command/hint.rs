//! Guesses what a failed program lacked: a file outside of the paths that its profile lets it read,
//! or the network. The guess comes from the last lines of its standard error, and users see it as a
//! hint.

use std::path::Path;

use domain::AgentProfile;

use crate::sandbox::may_read;

/// Error texts of programs that can't find a file or may not read it.
const NO_FILE: [&str; 4] = ["Permission denied", "EACCES", "No such file", "ENOENT"];
/// Error texts of programs without a network.
const NO_NETWORK: [&str; 8] = [
    "Operation not permitted",
    "EPERM",
    "Network is unreachable",
    "ENETUNREACH",
    "Name or service not known",
    "name resolution",
    "EAI_AGAIN",
    "resolve host",
];

/// Returns the setting that may help, if the last lines contain a known error text.
pub(super) fn of(profile: &AgentProfile, errors: &str) -> Option<String> {
    let says = |words: &[&str]| words.iter().any(|word| errors.contains(word));
    let is_barred = |word: &&String| {
        let path = Path::new(word.as_str());
        path.is_file() && !may_read(word, &profile.reads) && errors.contains(word.as_str())
    };
    if says(&NO_FILE) {
        if let Some(file) = profile.command.iter().skip(1).find(is_barred) {
            return Some(format!(
                "the program may not read `{file}`: list it, or its directory, in `reads` of the agent's profile"
            ));
        }
        if says(&NO_FILE[..2]) {
            return Some(
                "a program reads its workspace, the system's files and what `reads` of its agent's profile lists".into(),
            );
        }
    }
    let lacks_network = !profile.network && says(&NO_NETWORK);
    lacks_network
        .then(|| "the program has no network: `network: true` in its agent's profile gives it one".into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_program_that_lacks_something_gets_a_hint() {
        let file = std::env::temp_dir().join(format!("trellis-hint-{}.py", std::process::id()));
        std::fs::write(&file, "print(1)").unwrap();
        let name = file.display().to_string();
        let profile = |more: serde_json::Value| -> AgentProfile {
            let mut profile = json!({"agent_id": "a", "kind": "command", "command": ["python3", name]});
            profile.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value(profile).unwrap()
        };
        let denied = format!("can't open file '{name}': [Errno 13] Permission denied");
        let hint = of(&profile(json!({})), &denied).unwrap();
        assert!(hint.contains(&name) && hint.contains("`reads`"), "{hint}");
        let reads = profile(json!({"reads": [std::env::temp_dir()]}));
        assert!(!of(&reads, &denied).unwrap().contains(&name), "it may read that file");
        let offline = "URLError: <urlopen error [Errno 1] Operation not permitted>";
        assert!(of(&profile(json!({})), offline).unwrap().contains("`network: true`"));
        assert_eq!(of(&profile(json!({"network": true})), offline), None);
        assert_eq!(of(&profile(json!({})), "ZeroDivisionError: division by zero"), None);
        std::fs::remove_file(&file).unwrap();
    }
}
