//! One call to a provider, with a streamed answer. At its timeout the call is dropped, which closes
//! the connection. This module never retries: the caller decides about a failure.

use futures_util::StreamExt;
use genai::chat::{ChatStream, ChatStreamEvent, StopReason, StreamEnd};
use tracing::{instrument::WithSubscriber, subscriber::NoSubscriber};

use super::{
    failure,
    frames::Frames,
    provider::Route,
    request::{Completion, Error, Request},
    size::{MAX_ANSWER_BYTES, Size},
    tool_names::ToolNames,
    translate, written_name,
};
use crate::{
    relay::{Fault, Relay, RequestSent, Shape, Upstream},
    settings::Protocol,
};

pub(super) async fn make(
    route: &Route<'_>,
    request: &Request<'_>,
    on_text: &mut (dyn FnMut(&str) + Send),
) -> Result<Completion, Error> {
    let sent = RequestSent::default();
    let answered = tokio::time::timeout(request.timeout, stream_answer(route, request, &sent, on_text)).await;
    let answered = answered.unwrap_or_else(|_| {
        let message = format!("`{}` gave no complete answer within {:?}", route.provider, request.timeout);
        Err(Error::Unknown { message })
    });
    match answered {
        // A request that never left this machine was not served, and costs nothing.
        Err(Error::Unknown { message }) if !sent.is_set() => {
            Err(Error::Refused { message, retryable: true, retry_after: None })
        }
        answered => answered,
    }
}

async fn stream_answer(
    route: &Route<'_>,
    request: &Request<'_>,
    sent: &RequestSent,
    on_text: &mut (dyn FnMut(&str) + Send),
) -> Result<Completion, Error> {
    let relay = Relay::open(upstream(route, sent).await?).await;
    let relay = relay.and_then(|relay| Ok((relay.address()?, relay)));
    let (address, mut relay) = relay.map_err(|error| failure::no_relay(route, &error))?;
    let mut broken = None;
    let passed_on = async {
        match relay.pass_on().await {
            // The client decides whether the answer is complete without the missing part.
            Err(fault @ Fault::Broken(_)) => broken = Some(fault),
            // The client closed its side, so its own result is here or follows soon.
            Ok(()) | Err(Fault::Local(_)) => {}
            Err(fault) => return fault,
        }
        std::future::pending().await
    };
    let read = tokio::select! {
        biased;
        fault = passed_on => return Err(failure::from_fault(route, &fault)),
        read = read_answer(route, request, address, on_text) => read,
    };
    match (read, broken) {
        (Err(Error::Unknown { .. }), Some(fault)) => Err(failure::from_fault(route, &fault)),
        (read, _) => read,
    }
}

async fn upstream(route: &Route<'_>, sent: &RequestSent) -> Result<Upstream, Error> {
    let shape = match route.protocol {
        Protocol::Openai | Protocol::Anthropic | Protocol::Gemini => Shape::Events,
        Protocol::Ollama => Shape::Lines,
    };
    let (client, base) = (route.http.clone(), route.base_url().await?);
    Ok(Upstream { client, base, shape: Some(shape), passes_errors: false, longest: None, sent: sent.clone() })
}

async fn read_answer(
    route: &Route<'_>,
    request: &Request<'_>,
    address: String,
    on_text: &mut (dyn FnMut(&str) + Send),
) -> Result<Completion, Error> {
    let names = ToolNames::new(request.tools, request.messages);
    let frames = Frames::default();
    let options = translate::options(route.protocol, request);
    let options = written_name::without_effort(route.protocol, route.model, options);
    let mut options = frames.watch(route.protocol, options);
    let bearer = route.bearer().map(|bearer| ("Authorization".to_owned(), bearer));
    let traceparent = request.traceparent.map(|value| ("traceparent".to_owned(), value.to_owned()));
    let headers: Vec<(String, String)> = bearer.into_iter().chain(traceparent).collect();
    if !headers.is_empty() {
        options = options.with_extra_headers(headers);
    }
    let chat_request = translate::chat_request(route.protocol, request, &names);
    // The request is sent only when the stream is read.
    let opened = route.client.exec_chat_stream(route.target(address), chat_request, Some(&options)).await;
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
            Some(Err(cause)) => return Err(failure::from_call(route, &cause)),
            None => return Err(broken_off(route)),
        }
    };
    if !frames.ended(route.protocol) {
        return Err(broken_off(route));
    }
    Ok(completion(route, request, &names, &frames, end))
}

/// Reads the next event without a log: the client logs answers of a provider, which may contain the
/// key.
async fn next(stream: &mut ChatStream) -> Option<genai::Result<ChatStreamEvent>> {
    stream.next().with_subscriber(NoSubscriber::new()).await
}

fn broken_off(route: &Route<'_>) -> Error {
    Error::Unknown { message: format!("the answer of `{}` broke off", route.provider) }
}

/// The end is `Unknown`, since the provider may still charge for the answer.
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
    let usage = frames.usage(route.protocol);
    let cut_off = matches!(end.captured_stop_reason, Some(StopReason::MaxTokens(_)));
    let content = end.captured_content.unwrap_or_default();
    let text = content.joined_texts().filter(|text| !text.is_empty());
    let called = match route.protocol {
        Protocol::Openai => frames.take_calls(),
        Protocol::Anthropic | Protocol::Gemini | Protocol::Ollama => content.into_tool_calls(),
    };
    let calls = translate::calls(route.protocol, request, called, names);
    Completion { text, calls, usage, cut_off, named: frames.named() }
}
