//! Calls over the network: to real servers for tests, and to recorded bytes of providers.

mod aimock;
mod bad_answers;
mod hostile;
mod llama;
mod names;
mod prices;
mod replay;
mod usages;

use std::time::Duration;

use domain::{Json, id::ModelName};
use serde_json::Value;

use super::{Completion, Error, Message, Models, Request, ToolSpec};
use crate::settings::{Protocol, Provider, Settings};

const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// A request of a test.
struct TestRequest {
    messages: Vec<Message>,
    tools: Vec<ToolSpec>,
    schema: Option<Json>,
    max_tokens: u32,
    timeout: Duration,
}

impl TestRequest {
    fn user(text: &str) -> TestRequest {
        let messages = vec![Message::System("You are a test.".into()), Message::User(text.into())];
        TestRequest { messages, tools: Vec::new(), schema: None, max_tokens: 100, timeout: TEST_TIMEOUT }
    }

    /// The answer, and the pieces of its text in the order they arrived.
    async fn send(&self, models: &Models, model: &str) -> (Result<Completion, Error>, Vec<String>) {
        let model = ModelName::new(model).unwrap();
        let request = Request {
            model: &model,
            messages: &self.messages,
            tools: &self.tools,
            max_tokens: self.max_tokens,
            output_schema: self.schema.as_ref(),
            timeout: self.timeout,
            traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"),
            script: None,
        };
        let mut pieces = Vec::new();
        let answer = models.complete(&request, &mut |piece: &str| pieces.push(piece.to_owned())).await;
        (answer, pieces)
    }
}

fn provider(protocol: Protocol, base_url: &str) -> Provider {
    Provider { protocol, base_url: Some(base_url.to_owned()), key_env: None, priced_as: None }
}

fn models(providers: impl IntoIterator<Item = (&'static str, Provider)>) -> Models {
    let providers = providers.into_iter().map(|(name, provider)| (name.to_owned(), provider)).collect();
    Models::new(&Settings { providers, ..Settings::default() }).unwrap()
}

fn tool(name: &str, parameters: Value) -> ToolSpec {
    let name = domain::id::ToolName::new(name).unwrap();
    ToolSpec { name, description: "a tool".into(), parameters: Json::from(parameters) }
}

fn is_unknown(answer: &Result<Completion, Error>) -> bool {
    matches!(answer, Err(Error::Unknown { .. }))
}
