
// The timeline can be zoomed by dragging, with buttons or with keys; a double click shows all of it
// again. The zoomed range is in milliseconds of the run, so it stays when the rest is drawn again.
let looked = null;
let drag;
const plots = () => [...document.querySelectorAll(".timeline td svg")];
const lasted = () => Number(document.querySelector(".timeline")?.dataset.lasts ?? 0);
const seen = () => looked ?? { from: 0, to: lasted() };
/** The shortest range. In a shorter one, the bars with a minimum width would fill the row. */
const closest = () => lasted() / 500;

function look(from, to) {
    const width = Math.min(Math.max(to - from, closest()), lasted());
    const begin = Math.min(Math.max(from, 0), lasted() - width);
    looked = width < lasted() ? { from: begin, to: begin + width } : null;
    showLook(true);
}

/**
 * Updates rows, axis, buttons and text for the zoomed range. A screen reader announces only a range
 * that the user chose.
 */
function showLook(isAsked = false) {
    $("range")?.setAttribute("aria-live", isAsked ? "polite" : "off");
    const table = document.querySelector(".timeline");
    const box = plots()[0]?.getBoundingClientRect();
    if (!box?.width) return;
    const [{ from, to }, all, units] = [seen(), lasted(), Number(table.dataset.width)];
    const width = ((to - from) / all) * units;
    for (const plot of plots()) plot.setAttribute("viewBox", `${(from / all) * units} 0 ${width} 10`);
    // A row is stretched to its width, but its hatches must not be.
    for (const hatch of document.querySelectorAll("pattern[id^='row-']")) hatch.setAttribute("patternTransform", `scale(${width / box.width} ${10 / box.height})`);
    axis(from, to, box.width);
    $("range").textContent = looked ? `${timeOf(from, (to - from) / 10)} to ${timeOf(to, (to - from) / 10)} of ${timeOf(all, all / 10)}` : `all of ${timeOf(all, all / 10)}`;
    const can = { closer: to - from > closest() * 1.01, wider: looked, whole: looked, earlier: from > 0, later: to < all };
    const on = document.activeElement;
    for (const button of $("looks").querySelectorAll("button")) button.disabled = !can[button.dataset.look];
    // A disabled button that had the focus passes it to the next enabled one.
    if (on?.dataset.look && on.disabled) $("looks").querySelector("button:enabled")?.focus();
}

const SIZES = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000]];
/** Formats a time of the run, as precisely as the step of the axis needs. */
function timeOf(ms, step) {
    const all = lasted();
    if (all < 1000) return `${Math.round(ms)} ms`;
    const digits = step >= 1000 ? 0 : step >= 100 ? 1 : step >= 10 ? 2 : 3;
    const grain = step >= 60_000 ? 60_000 : 10 ** (3 - digits);
    let left = Math.round(ms / grain) * grain;
    const parts = [];
    for (const [name, size] of SIZES) {
        if (size > 1000 && all < 2 * size) continue;
        const number = size > 1000 ? Math.floor(left / size) : (left / size).toFixed(digits);
        if (Number(number)) parts.push(`${number} ${name}`);
        left -= number * size;
    }
    return parts.join(" ") || "0 s";
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, ...[1, 2, 5, 10, 20, 30].map((s) => s * 1000), ...[1, 2, 5, 10, 20, 30].map((min) => min * 60_000),
    ...[1, 2, 3, 6, 12, 24, 48, 120, 240, 480, 1200].map((h) => h * 3_600_000)];
/** Labels the axis with the first step whose labels are few enough and fit. */
function axis(from, to, room) {
    const ticks = [...document.querySelectorAll(".axis .tick")];
    const timesOf = (step) => Array.from({ length: Math.floor(to / step) - Math.ceil(from / step) + 1 }, (_, place) => (Math.ceil(from / step) + place) * step);
    const widthOf = (text) => text.length * 7;
    const fits = (step) => {
        if ((to - from) / step >= ticks.length) return false;
        const words = timesOf(step).map((time) => widthOf(timeOf(time, step)));
        return words.length * (Math.max(...words) * 1.5 + 6) <= room;
    };
    const step = STEPS.find(fits) ?? STEPS.at(-1);
    const times = timesOf(step);
    ticks.forEach((tick, place) => {
        tick.toggleAttribute("hidden", place >= times.length);
        if (place >= times.length) return;
        const [text, x] = [timeOf(times[place], step), ((times[place] - from) / (to - from)) * room];
        const [line, word] = tick.children;
        for (const [name, value] of [["x1", x], ["x2", x]]) line.setAttribute(name, value);
        word.setAttribute("x", x);
        word.setAttribute("text-anchor", x < widthOf(text) / 2 ? "start" : x > room - widthOf(text) / 2 ? "end" : "middle");
        word.textContent = text;
    });
}

const LOOKS = {
    closer: ({ from, to }) => look(from + (to - from) / 4, to - (to - from) / 4),
    wider: ({ from, to }) => look(from - (to - from) / 2, to + (to - from) / 2),
    earlier: ({ from, to }) => look(from - (to - from) / 2, to - (to - from) / 2),
    later: ({ from, to }) => look(from + (to - from) / 2, to + (to - from) / 2),
    whole: () => look(0, lasted()),
};
const LOOK_KEYS = { "+": "closer", "=": "closer", "-": "wider", ArrowLeft: "earlier", ArrowRight: "later", 0: "whole" };
document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-look]");
    if (button) LOOKS[button.dataset.look](seen());
});
document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea") || !plots().length) return;
    const name = LOOK_KEYS[event.key];
    if (!name) return;
    event.preventDefault();
    LOOKS[name](seen());
});

function at(plot, x) {
    const [{ from, to }, box] = [seen(), plot.getBoundingClientRect()];
    return from + (Math.min(Math.max(x - box.left, 0), box.width) / box.width) * (to - from);
}
document.addEventListener("pointerdown", (event) => {
    const plot = event.button === 0 && event.target.closest(".timeline svg");
    drag = plot ? { plot, from: at(plot, event.clientX), x: event.clientX } : undefined;
});
// A band shows the range that a release of the button would zoom to.
document.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const [table, box] = [drag.plot.closest(".timeline").getBoundingClientRect(), drag.plot.getBoundingClientRect()];
    const [one, other] = [drag.x, Math.min(Math.max(event.clientX, box.left), box.right)].sort((a, b) => a - b);
    const band = $("band");
    band.hidden = other - one < 3;
    for (const [name, size] of Object.entries({ left: one + scrollX, top: table.top + scrollY, width: other - one, height: table.height })) band.style.setProperty(name, `${size}px`);
});
let dragged = false;
document.addEventListener("pointerup", (event) => {
    dragged = false;
    if (!drag) return;
    $("band").hidden = true;
    const [one, other] = [drag.from, at(drag.plot, event.clientX)].sort((a, b) => a - b);
    dragged = Math.abs(event.clientX - drag.x) > 3;
    drag = undefined;
    if (dragged && other - one >= closest()) look(one, other);
});
// A vertical movement of a finger scrolls.
document.addEventListener("pointercancel", () => {
    if (drag) $("band").hidden = true;
    drag = undefined;
});
// Dragging over a bar zooms, and does not open its link.
document.addEventListener("dragstart", (event) => { if (event.target.closest?.(".timeline")) event.preventDefault(); });
document.addEventListener("click", (event) => { if (dragged && event.target.closest(".timeline svg")) event.preventDefault(); });
document.addEventListener("dblclick", (event) => { if (event.target.closest(".timeline")) LOOKS.whole(); });
addEventListener("resize", () => showLook());
showLook();
