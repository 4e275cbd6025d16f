//! The frame around every view: the HTML head, the navigation, and the name of the caller.

use domain::{
    ChildId,
    subject::{Subject, Topic},
};
use maud::{DOCTYPE, Markup, html};

use super::asset;
use crate::call::Call;

/// The part of the navigation that a view belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Here {
    Runs,
    Questions,
    Workers,
    Agents,
    Schedules,
    Operations,
    Dead,
    Playground,
}

impl Here {
    const ALL: [Here; 8] = [
        Here::Runs,
        Here::Questions,
        Here::Workers,
        Here::Agents,
        Here::Schedules,
        Here::Operations,
        Here::Dead,
        Here::Playground,
    ];

    fn link(self) -> (&'static str, &'static str) {
        match self {
            Here::Runs => ("./", "Runs"),
            Here::Questions => ("questions", "Questions"),
            Here::Workers => ("workers", "Workers"),
            Here::Agents => ("agents", "Agents"),
            Here::Schedules => ("schedules", "Schedules"),
            Here::Operations => ("operations", "Operations"),
            Here::Dead => ("dead", "Dead letters"),
            Here::Playground => ("playground", "Playground"),
        }
    }

    /// After how many seconds a list without a stream is loaded again. The interval is longer if
    /// the list is expensive to read.
    fn looked_at_after(self) -> Option<u32> {
        match self {
            Here::Workers => Some(3),
            Here::Operations => Some(5),
            Here::Schedules => Some(10),
            Here::Dead => Some(15),
            // A changed number of questions reloads it sooner.
            Here::Questions => Some(30),
            Here::Runs | Here::Agents | Here::Playground => None,
        }
    }

    /// True if the caller may see this part. The navigation hides the others.
    pub(super) fn is_for(self, call: &Call) -> bool {
        let may_ask = |topic| call.may_send(&Subject::Query(topic));
        match self {
            Here::Runs | Here::Questions => may_ask(Topic::Runs),
            Here::Workers => call.may_send(&Subject::Worker),
            Here::Operations => may_ask(Topic::Coordinators) && call.may_send(&Subject::Worker),
            Here::Agents => may_ask(Topic::Agents),
            Here::Schedules => may_ask(Topic::Schedules),
            Here::Playground => call.playground.is_some() && call.may_send(&Subject::Submit),
            Here::Dead => call.may_hear(&Subject::Dead(ChildId::whole_trace())),
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

/// A page without navigation, for a client that is not signed in.
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
                a class="skip" href=(call.place("main")) { "To the content" }
                header class="top" {
                    a class="name" href="./" { "trellis" }
                    nav aria-label="Views" {
                        @for one in Here::ALL.into_iter().filter(|one| one.is_for(call)) {
                            @let (href, name) = one.link();
                            a href=(href) aria-current=[(one == here).then_some("page")] {
                                (name) @if one == Here::Questions { " " span class="count" id="open-questions" {} }
                            }
                        }
                    }
                    span id="live" class="live" role="status" { "" }
                    span class="who" { (call.caller.name) }
                    @if call.known.as_ref().is_some_and(|known| known.until.is_some()) {
                        form method="post" action="sign-out" { button type="submit" { "Sign out" } }
                    }
                }
                main id="main" data-refresh=[here.looked_at_after()] { (body) }
            }
        }
    }
}
