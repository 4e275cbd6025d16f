//! What stands around every view: head, navigation, and who is signed in.

use maud::{DOCTYPE, Markup, html};

use super::asset;
use crate::call::Call;

/// Which part of the navigation a view belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Here {
    Runs,
}

impl Here {
    const ALL: [Here; 1] = [Here::Runs];

    fn link(self) -> (&'static str, &'static str) {
        match self {
            Here::Runs => ("./", "Runs"),
        }
    }
}

fn head(base: &str, title: &str) -> Markup {
    let version = asset::VERSION.as_str();
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            base href=(base);
            title { (title) " · trellis" }
            link rel="icon" href="data:,";
            link rel="stylesheet" href={ "assets/page.css?v=" (version) };
            script src={ "assets/page.js?v=" (version) } defer {}
        }
    }
}

/// A page of nobody.
pub(super) fn bare(base: &str, title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(base, title))
            body { (body) }
        }
    }
}

pub(super) fn whole(call: &Call, title: &str, here: Here, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(&call.base, title))
            body {
                a class="skip" href={ (call.here) "#main" } { "To the content" }
                header class="top" {
                    a class="name" href="./" { "trellis" }
                    nav aria-label="Views" {
                        @for one in Here::ALL {
                            @let (href, name) = one.link();
                            a href=(href) aria-current=[(one == here).then_some("page")] { (name) }
                        }
                    }
                    span id="live" class="live" role="status" { "" }
                    span class="who" { (call.caller.name) }
                }
                main id="main" { (body) }
            }
        }
    }
}
