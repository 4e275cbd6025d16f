//! The result of a server's tool as text. Content that is not text becomes a note with its kind and size.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

use crate::tool::call::Output;

pub(super) fn to_text(result: CallToolResult) -> Output {
    let mut parts: Vec<String> = result.content.iter().map(part).collect();
    if let Some(value) = result.structured_content.filter(|_| parts.is_empty()) {
        parts.push(value.to_string());
    }
    let text = match parts.is_empty() {
        true => "[no content]".into(),
        false => parts.join("\n"),
    };
    if result.is_error == Some(true) { Err(text) } else { Ok(text) }
}

fn part(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => note("image", &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => note("audio", &audio.mime_type, &audio.data),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[resource {uri}]\n{text}"),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                note(&format!("resource {uri}"), mime_type.as_deref().unwrap_or("unknown type"), blob)
            }
            _ => "[a resource of an unknown kind]".into(),
        },
        ContentBlock::ResourceLink(link) => {
            format!("[link to {}: {}]", link.uri, link.description.as_deref().unwrap_or(&link.name))
        }
        _ => "[content of an unknown kind]".into(),
    }
}

/// A note about data in base64, where four characters are three bytes.
fn note(what: &str, kind: &str, data: &str) -> String {
    let bytes = data.trim_end_matches('=').len() * 3 / 4;
    format!("[{what}: {kind}, {bytes} bytes]")
}
