//! One call to a provider, whose answer is streamed. At its timeout it is dropped, which closes the connection.
//! It is never retried here: the caller decides what to do about a failure.

use futures_util::StreamExt;
use genai::chat::{ChatStream, ChatStreamEvent, StopReason, StreamEnd};
use tracing::{instrument::WithSubscriber, subscriber::NoSubscriber};

use super::{
    failure,
    provider::Route,
    request::{Completion, Error, Request},
    size::{MAX_ANSWER_BYTES, Size},
    tool_names::ToolNames,
    translate,
    usage::Frames,
};
use crate::settings::Protocol;

pub(super) async fn make(
    route: &Route<'_>,
    request: &Request<'_>,
    on_text: &mut (dyn FnMut(&str) + Send),
) -> Result<Completion, Error> {
    match tokio::time::timeout(request.timeout, stream_answer(route, request, on_text)).await {
        Ok(completion) => completion,
        Err(_) => Err(Error::Unknown {
            message: format!("`{}` gave no complete answer within {:?}", route.provider, request.timeout),
        }),
    }
}

async fn stream_answer(
    route: &Route<'_>,
    request: &Request<'_>,
    on_text: &mut (dyn FnMut(&str) + Send),
) -> Result<Completion, Error> {
    let names = ToolNames::new(request.tools, request.messages);
    let frames = Frames::default();
    let mut options = frames.watch(route.protocol, translate::options(route.protocol, request));
    if let Some(bearer) = route.bearer() {
        options = options.with_extra_headers(("Authorization".to_owned(), bearer));
    }
    let chat_request = translate::chat_request(route.protocol, request, &names);
    // The request is sent only when the stream is read.
    let opened = route.client.exec_chat_stream(route.target().await?, chat_request, Some(&options)).await;
    let mut stream = opened.map_err(|cause| failure::not_sent(route, &cause))?.stream;
    let mut size = Size::new(route.protocol);
    let end = loop {
        let event = next(&mut stream).await;
        if frames.overflowed() || matches!(&event, Some(Ok(event)) if !size.fits(event)) {
            return Err(too_large(route));
        }
        match event {
            Some(Ok(ChatStreamEvent::Chunk(chunk))) => on_text(&chunk.content),
            Some(Ok(ChatStreamEvent::End(end))) => break end,
            Some(Ok(
                ChatStreamEvent::Start
                | ChatStreamEvent::Heartbeat
                | ChatStreamEvent::ReasoningChunk(_)
                | ChatStreamEvent::ThoughtSignatureChunk(_)
                | ChatStreamEvent::ToolCallChunk(_),
            )) => {}
            Some(Err(cause)) => return Err(failure::from_call(route, cause)),
            None => return Err(broken_off(route)),
        }
    };
    if !frames.ended(route.protocol) {
        return Err(broken_off(route));
    }
    Ok(completion(route, request, &names, &frames, end))
}

/// Reads the next event without a log: the client logs what a provider answers, which may contain the key.
async fn next(stream: &mut ChatStream) -> Option<genai::Result<ChatStreamEvent>> {
    stream.next().with_subscriber(NoSubscriber::new()).await
}

fn broken_off(route: &Route<'_>) -> Error {
    Error::Unknown { message: format!("the answer of `{}` broke off", route.provider) }
}

/// `Unknown`, since the provider may still charge for the answer.
fn too_large(route: &Route<'_>) -> Error {
    let mib = MAX_ANSWER_BYTES >> 20;
    Error::Unknown { message: format!("the answer of `{}` is larger than {mib} MiB", route.provider) }
}

fn completion(
    route: &Route<'_>,
    request: &Request<'_>,
    names: &ToolNames,
    frames: &Frames,
    end: StreamEnd,
) -> Completion {
    let usage = frames.usage(end.captured_usage.as_ref());
    let cut_off = matches!(end.captured_stop_reason, Some(StopReason::MaxTokens(_)));
    let content = end.captured_content.unwrap_or_default();
    let text = content.joined_texts().filter(|text| !text.is_empty());
    let called = match route.protocol {
        Protocol::Openai => frames.take_calls(),
        Protocol::Anthropic | Protocol::Gemini | Protocol::Ollama => content.into_tool_calls(),
    };
    let calls = translate::calls(route.protocol, request, called, names);
    Completion { text, calls, usage, cut_off }
}
