//! Graphs that a file uses by name (G18). They are fetched from the cluster that stores them, so
//! that the file can be checked together with them.

use std::{collections::BTreeMap, sync::Arc};

use domain::{
    GraphName, Problem,
    graph::{self, FoundGraph, NotFound, Purpose},
    wire::{Query, QueryAnswer},
};

use crate::{cluster::connect::Servers, input::document::Document};

/// The graph of each name and version, or the reason why none was found.
type Answers = BTreeMap<(GraphName, Option<u64>), Result<FoundGraph, NotFound>>;

/// Replaces the names by the cluster's graphs. Mistakes in the names are reported together with all
/// others of the document.
pub(crate) async fn put(document: &mut Document, servers: &Servers) -> anyhow::Result<()> {
    let references = graph::references(&document.value);
    if references.is_empty() {
        return Ok(());
    }
    let mut answers = Answers::new();
    if !servers.has_cluster() {
        for (name, version) in references {
            let hint =
                "name the cluster, with NATS_URL or --nats-url, or the file of the graph, as `./facts.yaml`";
            let message = format!("`{name}` is a graph of a cluster, and no cluster is named");
            answers.insert((name, version), Err((message, Some(hint.into()))));
        }
    } else {
        let client = servers.cluster().await?;
        for (name, version) in references {
            let query = Query::Graph { name: name.clone(), version };
            let answer = match client.query(&query).await? {
                Ok(QueryAnswer::Graph(found)) => {
                    let graph = Arc::new(found.graph.value().clone());
                    Ok(FoundGraph { version: found.summary.version, graph })
                }
                Err(refusal) => match refusal.problems.first() {
                    Some(Problem { message, hint, .. }) => Err((message.clone(), hint.clone())),
                    None => anyhow::bail!("{}", refusal.message),
                },
                Ok(other) => return Err(client::Error::other_answer(other).into()),
            };
            answers.insert((name, version), answer);
        }
    }
    let put = graph::put(&mut document.value, Purpose::Submission, &|name, version| {
        answers.get(&(name.clone(), version)).cloned().transpose()
    });
    document.unread.problems.extend(put.problems);
    Ok(())
}
