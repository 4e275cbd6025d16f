// Texts of agents, tools and users are shown as plain text: they open no dialog, create no element,
// follow no link and run no script.
import assert from "node:assert/strict";
import { Person } from "./page.mjs";

const RUNS = "globalThis.__hit=1;alert(1)";
const MARKUP = [
    `<script>${RUNS}</script>`,
    `"><img src=x onerror="${RUNS}">`,
    `</pre></main></textarea></title></style><svg onload="${RUNS}"><animate onbegin="${RUNS}">`,
    `<a href="javascript:${RUNS}">javascript:${RUNS}</a> [x](javascript:${RUNS})`,
    "<base href=//evil.example/><meta http-equiv=refresh content=\"0;url=//evil.example/\"><link rel=stylesheet href=//evil.example/x.css>",
    `<iframe srcdoc="<script>${RUNS}</script>"></iframe><form action=//evil.example/><button>Press</button></form>`,
    "&lt;b&gt; &#x3c;b> \\u003cb> %3Cb%3E ${7*7} {{7*7}} <!--",
];
const WORDS = [
    MARKUP.join("\n"),
    "\u202eright to left\u202c \u2066isolated\u2069 \u200b\u200f\ufeff before\u0000after\u0007\u001b[31mred\u0085\u2028\u2029",
    "x".repeat(100_000),
    `${"<b>".repeat(300)}${"é".repeat(3000)}`,
];
/** Elements that a view never creates. */
const MADE = "main script, main img, main iframe, main style, main link, main meta, main object, main embed, main b, main animate, main [onload], main [onerror], a[href^='javascript:'], [href*='evil.example'], [src*='evil.example'], [action*='evil.example'], main base";

export default async function hostile(place) {
    const { client } = place;
    const anna = await Person.enter(place, place.tokens.anna);
    const harmless = async () => {
        assert.equal(await anna.page.evaluate(() => globalThis.__hit), undefined);
        assert.equal(await anna.count(MADE), 0, `${anna.page.url()} has made ${await anna.find(MADE).evaluateAll((all) => all.map((one) => one.outerHTML.slice(0, 200)))}`);
        await anna.fits();
    };
    // Invisible characters are not compared.
    const said = (text) => text.replace(/[\s\p{C}]+/gu, "");
    const shows = async (selector, words) => {
        const found = await anna.find(selector).first().evaluate((one) => one.textContent);
        const begins = said(words).slice(0, 40);
        assert.ok(said(found).includes(begins), `${anna.page.url()} ${selector}: ${said(found).slice(0, 200)}, not ${begins}`);
    };
    const bad = { agent_id: "bad", kind: "llm", model: "scripted", tools: ["fs.write", "ask_human"], limits: { max_tokens_per_step: 100_000 } };
    // The usage is fixed, so that long texts cost no more than short ones.
    const usage = { input_tokens: 100, output_tokens: 10 };
    const runs = [];
    for (const words of WORDS) {
        const short = words.slice(0, 3000);
        await client.apply({ ...bad, description: short, system_prompt: short, script: [
            { usage, say: words, call: [{ tool: "fs.write", arguments: { path: "outputs/page.html", content: words } }] },
            { usage, say: words, call: [{ tool: "ask_human", arguments: { question: short, choices: [short.slice(0, 500), "other"] } }] },
            { usage, say: `{last} ${words}` },
        ] });
        const trace = await client.submit({ goal: words.slice(0, 60_000), agent_id: "bad", child_id: "bad", max_cost_usd: 20 });
        runs.push({ trace, words });
    }
    const asking = [...runs];
    for (const words of MARKUP) {
        const trace = await client.submit({ goal: words, agent_id: "ask", inputs: { question: words, form: { choices: [words, "other"] } } });
        asking.push({ trace, words });
    }
    for (const { trace } of asking) await client.reaches(trace, "input_required");

    // While the agents ask: live rows, cards, and the labels of their buttons.
    await anna.go("", "#live:text('● live')");
    await harmless();
    for (const { trace, words } of asking) await shows(`#t-${trace} .goal`, words);
    await anna.go("questions", ".card");
    await harmless();
    for (const { trace, words } of asking) await shows(`.card:has(a[href='runs/${trace}'])`, words.slice(0, 3000).split("\n")[0]);
    await anna.go("agents", "#a-bad");
    await harmless();
    for (const [number, { trace, words }] of runs.entries()) {
        await anna.go(`runs/${trace}/contexts/bad`, "#live:text('● live')", "#e-1");
        await harmless();
        await shows(".facts .said", words);
        for (const one of await anna.find("summary").all()) await one.evaluate((summary) => { summary.parentNode.open = true; });
        await harmless();
        await shows("#e-1 details", words);
        // A page that is already open shows the end by itself.
        const { questions } = await client.ask("GET", "questions?limit=100");
        const asked = questions.find((one) => one.trace_id === trace);
        if (number % 2) await anna.go(`runs/${trace}`, "#live:text('● live')");
        await client.ask("POST", `runs/${trace}/contexts/bad/answers/${asked.number}`, { answer: asked.choices[0] });
        await anna.sees(".result pre");
        await harmless();
        for (const view of ["", "/timeline", "/contexts/bad"]) {
            await anna.go(`runs/${trace}${view}`, "#head .mark.good");
            await harmless();
        }
        await shows(".result pre", words);
        // A file that the agent wrote is downloaded, not opened as a page.
        const [download] = await Promise.all([anna.page.waitForEvent("download"), anna.find(".files a[download]").click()]);
        assert.equal(download.suggestedFilename(), "page.html");
    }
    // In the address too.
    anna.allow("status of 400");
    for (const words of MARKUP) {
        await anna.go(`?label=${encodeURIComponent(`a=${words}`)}`, "h1:text(\"This can't be shown\")");
        await harmless();
    }
    await anna.leave();
}
