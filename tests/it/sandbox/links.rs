//! Links that a program leaves where the worker reads or writes for it.

use std::os::unix::fs::PermissionsExt as _;

use domain::wire::EndStatus;
use serde_json::json;

use super::{Directory, apply, cluster, python, result};

/// Reads a large file through a tool, and fails so that it is run again. Its second attempt
/// replaces the stored answer by a link, and repeats the request.
const SWAP: &str = r#"
import os
def tool(name, **arguments):
    return ask(type="tool", id="t", tool=name, arguments=arguments)["text"]
again = os.path.isdir("outputs/tools") and os.listdir("outputs/tools")
if again:
    for name in again:
        os.remove("outputs/tools/" + name)
        os.symlink(os.environ["WANTED"], "outputs/tools/" + name)
tool("fs.write", path="large.txt", content="line\n" * 1000)
answer = tool("fs.read", path="large.txt")
if not again:
    sys.exit(75)
say(type="result", result=answer)
"#;

/// I4: a replayed answer comes from the journal and the object store, not from a file that the
/// program could replace by a link.
#[tokio::test(flavor = "multi_thread")]
async fn i4_a_replayed_answer_is_not_read_through_a_link() {
    let directory = Directory::new();
    let secret = directory.path().join("secret.txt");
    std::fs::write(&secret, "the worker's own secret").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let cluster = cluster(&[&[]]);
    let mut agent = python("swap", SWAP);
    agent["env"] = json!({"WANTED": secret});
    agent["tools"] = json!(["fs.read", "fs.write"]);
    apply(&cluster.client, vec![agent]).await;
    let outcome = cluster.client.run(json!({"goal": "swap", "agent_id": "swap"})).await;
    assert_eq!((outcome.context.status, outcome.context.attempts), (EndStatus::Completed, 2), "{outcome:#?}");
    assert_eq!(result(&outcome), "line\n".repeat(1000));
}

/// Puts links to a foreign directory and a foreign file in every place where the worker reads or
/// writes, then makes the worker do so.
const LINKS: &str = r#"
import os, shutil
def tool(name, **arguments):
    return ask(type="tool", id="t", tool=name, arguments=arguments)["text"]
others, secret = os.environ["OTHERS"], os.environ["WANTED"]
def link(to, place):
    if os.path.isdir(place) and not os.path.islink(place): shutil.rmtree(place)
    elif os.path.lexists(place): os.remove(place)
    os.symlink(to, place)
link(others, "history")
link(secret, "input.json")
link(secret, "outputs/report.txt")
link(others, "outputs/more")
link("/proc/self/environ", "outputs/environ.txt")
said = [tool("fs.read", path=path) for path in ["input.json", "outputs/report.txt", "outputs/more/secret.txt", "outputs/environ.txt",
    "history/secret.txt", secret, "../../../../" + secret]]
said += [tool("fs.list", path=path) for path in ["outputs", "outputs/more", "history"]]
said += [tool("fs.write", path=path, content="overwritten") for path in ["outputs/report.txt", "outputs/more/new.txt", "input.json"]]
os.makedirs("outputs/tools", exist_ok=True)
link(others, "outputs/tools")
tool("fs.write", path="large.txt", content="line\n" * 1000)
tool("fs.read", path="large.txt")
say(type="result", result=said)
"#;

/// I4: reading or writing in a workspace, the worker follows no link there: neither to a file nor
/// to a directory, neither in the last nor in an earlier part of a path.
#[tokio::test(flavor = "multi_thread")]
async fn i4_no_link_in_a_workspace_is_followed() {
    const SECRET: &str = "the worker's own secret";
    let directory = Directory::new();
    let secret = directory.path().join("secret.txt");
    std::fs::write(&secret, SECRET).unwrap();
    let cluster = cluster(&[&[]]);
    let mut agent = python("links", LINKS);
    agent["env"] = json!({"WANTED": secret, "OTHERS": directory.path()});
    agent["tools"] = json!(["fs.read", "fs.write", "fs.list"]);
    apply(&cluster.client, vec![agent]).await;
    let outcome = cluster.client.run(json!({"goal": "link", "agent_id": "links"})).await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    let said = result(&outcome);
    let whole = format!("{outcome:?} {said}");
    assert!(!whole.contains(SECRET) && !whole.contains("PATH="), "{whole}");
    assert_eq!(said.as_array().unwrap().len(), 13, "{said:#}");
    let names: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["secret.txt"], "nothing was written beside it");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), SECRET);
    cluster.stop().await;
}
