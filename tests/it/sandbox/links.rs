//! Links that a program leaves where the worker reads or writes for it.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;
use shared::wire::EndStatus;

use super::{Directory, apply, cluster, python, result};

/// Reads a large file through a tool, and fails so that it is run again. In its second attempt it puts a link in the
/// place of the stored answer, and asks the same again.
const SWAP: &str = r#"
import os
def tool(name, **arguments):
    return ask(type="tool", id="t", tool=name, arguments=arguments)["text"]
again = os.path.isdir("outputs/tools") and os.listdir("outputs/tools")
if again:
    for name in again:
        os.remove("outputs/tools/" + name)
        os.symlink(os.environ["SECRET"], "outputs/tools/" + name)
tool("fs.write", path="large.txt", content="line\n" * 1000)
answer = tool("fs.read", path="large.txt")
if not again:
    sys.exit(75)
say(type="result", result=answer)
"#;

/// I4: an answer that is replayed comes from the journal and the object store, not from a file that the program
/// could replace by a link.
#[tokio::test(flavor = "multi_thread")]
async fn i4_a_replayed_answer_is_not_read_through_a_link() {
    let directory = Directory::new();
    let secret = directory.path().join("secret.txt");
    std::fs::write(&secret, "the worker's own secret").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let cluster = cluster(&[&[]]);
    let mut agent = python("swap", SWAP);
    agent["env"] = json!({"SECRET": secret});
    agent["tools"] = json!(["fs.read", "fs.write"]);
    apply(&cluster.client, vec![agent]).await;
    let outcome = cluster.client.run(json!({"goal": "swap", "agent_id": "swap"})).await;
    assert_eq!((outcome.context.status, outcome.context.attempts), (EndStatus::Completed, 2), "{outcome:#?}");
    assert_eq!(result(&outcome), "line\n".repeat(1000));
}
