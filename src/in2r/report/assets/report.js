// The page's behaviour. Nothing here makes HTML: texts are read and written by textContent alone.
"use strict";

const WORDS = ["right", "wrong", "unsure"];
const KEY_WORDS = { r: "right", w: "wrong", u: "unsure" };
const STORE = "in2r-report:" + document.body.dataset.audit;
const Z = 1.959964; // of a 95 % interval, as in decisions.py

const find = (id) => document.getElementById(id);
const panels = [...document.querySelectorAll(".panel")];
const cards = [...document.querySelectorAll(".card")].map(readCard);
const cardOf = new Map(cards.map((card) => [card.element, card]));
const cardsOfRow = new Map();
for (const card of cards) cardsOfRow.set(card.row, [...(cardsOfRow.get(card.row) ?? []), card]);
const sample = cards.filter((card) => card.panel === "sample").map((card) => card.row);

const decisions = new Map(); // row -> word, in the order in which they were made; also of rows that no card shows
const given = new Map( // with which the page began
  Object.entries(JSON.parse(document.body.dataset.decided)).map(([row, word]) => [Number(row), word]),
);
const done = []; // what undo takes back: [row, the word before or undefined]
let kept = true; // whether the browser keeps decisions
let panel = "worst";
let current = null;

function readCard(element) {
  const text = (name) => element.querySelector(name).textContent.toLowerCase();
  return {
    element,
    row: Number(element.dataset.row),
    verdict: element.dataset.verdict,
    source: element.dataset.source,
    flagged: "flagged" in element.dataset,
    panel: element.closest(".panel").id,
    decidable: Boolean(element.querySelector(".decide")),
    text: text(".caption") + "\n" + text(".id"),
  };
}

// --- decisions

function decide(row, word) {
  done.push([row, decisions.get(row)]);
  put(row, decisions.get(row) === word ? undefined : word);
  show();
}

function undo() {
  if (!done.length) return;
  const [row, before] = done.pop();
  put(row, before);
  show();
  const card = (cardsOfRow.get(row) ?? []).find((each) => each.panel === panel && !each.element.hidden);
  if (card) goTo(card);
}

function put(row, word) {
  decisions.delete(row);
  if (word) decisions.set(row, word);
  mark(row);
  try {
    const back = [...given.keys()].filter((each) => !decisions.has(each)).map((each) => [each, null]);
    localStorage.setItem(STORE, JSON.stringify([...decisions, ...back]));
    kept = true;
  } catch {
    kept = false;
  }
}

function mark(row) {
  const word = decisions.get(row);
  for (const { element } of cardsOfRow.get(row) ?? []) {
    if (word) element.dataset.decision = word;
    else delete element.dataset.decision;
    for (const button of element.querySelectorAll(".decide button")) {
      button.setAttribute("aria-pressed", String(button.dataset.word === word));
    }
  }
}

/** Begin with the decisions that the audit was given, and over them those that this browser keeps. */
function load() {
  let own = [];
  try {
    own = JSON.parse(localStorage.getItem(STORE) ?? "[]");
  } catch {
    kept = false;
  }
  const differing = own.filter(([row, word]) => given.has(row) && given.get(row) !== word).length;
  find("differing").textContent = differing ? `${differing} rows: this browser's decision, not the file's` : "";
  for (const [row, word] of [...given, ...own]) {
    if (WORDS.includes(word)) decisions.set(row, word);
    else if (word === null) decisions.delete(row);
    mark(row);
  }
}

/** The text of decisions.json, a line for each decision. */
function exported() {
  const lines = [...decisions].map(([row, decision]) => "\n  " + JSON.stringify({ row, decision }));
  const audit = JSON.stringify(document.body.dataset.audit);
  return `{\n "format": 1,\n "audit": ${audit},\n "sample": [${sample}],\n "given": [${[...given.keys()]}],\n "decisions": [${lines}\n ]\n}\n`;
}

// --- counts

function count(rows) {
  const words = rows.map((row) => decisions.get(row));
  const [right, wrong] = WORDS.map((word) => words.filter((each) => each === word).length);
  return { wrong, total: wrong + right };
}

function wilson(wrong, total) {
  const p = wrong / total;
  const spread = (Z * Z) / total;
  const half = Math.sqrt(spread * (p * (1 - p) + spread / 4));
  return [p, (p + spread / 2 - half) / (1 + spread), (p + spread / 2 + half) / (1 + spread)];
}

function share({ wrong, total }) {
  const [p, low, high] = wilson(wrong, total).map((value) => (100 * value).toFixed(0));
  return `${p} % (${low} to ${high} %) of ${total}`;
}

function sampleInOrder() {
  const gap = sample.findIndex((row) => !decisions.has(row));
  return gap < 0 ? sample : sample.slice(0, gap);
}

function showCounts() {
  const words = [...decisions.values()];
  const parts = ["wrong", "right", "unsure"].map((word) => `${words.filter((each) => each === word).length} ${word}`);
  find("count").textContent = words.length ? `${words.length} decided: ${parts.join(", ")}` : "Nothing decided yet";
  const suspects = count([...decisions.keys()].filter((row) => cardsOfRow.get(row)?.[0].flagged));
  const random = count(sampleInOrder());
  const lines = [];
  if (suspects.total) lines.push(`wrong among the suspects and mismatches you decided: ${share(suspects)}`);
  if (random.total) lines.push(`wrong in the random sample: ${share(random)}`);
  find("shares").textContent = lines.join("; ");
  find("undo").disabled = !done.length;
  find("refused").hidden = kept;
}

// --- what is visible

function passes(card) {
  const word = decisions.get(card.row);
  const state = find("decided").value;
  const wanted = find("search").value.trim().toLowerCase();
  return (
    (!find("verdict").value || card.verdict === find("verdict").value) &&
    (!find("source").value || card.source === find("source").value) &&
    (!state || (state === "no" ? !word : state === "yes" ? Boolean(word) : word === state)) &&
    (!wanted || card.text.includes(wanted) || String(card.row) === wanted.replace(/^row\s*|[,#]/g, ""))
  );
}

function show() {
  for (const card of cards) card.element.hidden = !passes(card);
  for (const group of document.querySelectorAll(".group")) group.hidden = !group.querySelector(".card:not([hidden])");
  for (const each of panels) {
    each.hidden = each.id !== panel;
    each.querySelector(".nothing").hidden = Boolean(each.querySelector(".card:not([hidden])") ?? !each.querySelector(".card"));
  }
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const selected = tab.id === "tab-" + panel;
    tab.setAttribute("aria-selected", String(selected));
    tab.tabIndex = selected ? 0 : -1;
  }
  showCounts();
}

function openPanel(id) {
  panel = id;
  current = null;
  show();
  window.scrollTo(0, 0);
}

function visible() {
  return cards.filter((card) => card.panel === panel && !card.element.hidden);
}

function goTo(card) {
  current = card;
  card.element.focus({ preventScroll: true });
  card.element.scrollIntoView({ block: "nearest" });
}

function focused() {
  return cardOf.get(document.activeElement?.closest?.(".card")) ?? current;
}

/** Go to the visible card `step` places from the current one; to the first if there is none. */
function move(step) {
  const list = visible();
  if (!list.length) return;
  const place = list.indexOf(focused());
  goTo(list[place < 0 ? 0 : Math.min(Math.max(place + step, 0), list.length - 1)]);
}

/** Decide the current card, then go to the next; a filter may hide the decided one. */
function decideByKey(word) {
  const card = focused();
  if (!card || card.panel !== panel || card.element.hidden) return move(0);
  const next = visible()[visible().indexOf(card) + 1];
  if (!card.decidable) return goTo(next ?? card);
  if (decisions.get(card.row) === word) return goTo(next ?? card);
  decide(card.row, word);
  goTo(next ?? card);
}

// --- events

function open(id) {
  if (id === "save-dialog") {
    const text = exported();
    find("text").value = text;
    URL.revokeObjectURL(find("download").href);
    find("download").href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  }
  find(id).showModal();
}

function toggleDetails() {
  const details = focused()?.element.querySelector("details");
  if (details) details.open = !details.open;
}

const ACTIONS = {
  j: () => move(1),
  ArrowDown: () => move(1),
  k: () => move(-1),
  ArrowUp: () => move(-1),
  z: undo,
  e: toggleDetails,
  "/": () => find("search").focus(),
  "?": () => open("keys-dialog"),
};
for (const [key, word] of Object.entries(KEY_WORDS)) ACTIONS[key] = () => decideByKey(word);
panels.forEach((each, place) => (ACTIONS[place + 1] = () => openPanel(each.id)));

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target.id === "search") return event.target.blur();
  const typing = event.target.closest("input, select, textarea, dialog");
  const action = Object.hasOwn(ACTIONS, event.key) ? ACTIONS[event.key] : null;
  if (typing || !action || event.ctrlKey || event.metaKey || event.altKey) return undefined;
  event.preventDefault();
  return action();
});

document.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const place = panels.findIndex((each) => each.id === panel);
  openPanel(panels[(place + step + panels.length) % panels.length].id);
  find("tab-" + panel).focus();
});

document.addEventListener("click", (event) => {
  const tab = event.target.closest("[role=tab]");
  if (tab) openPanel(tab.getAttribute("aria-controls"));
  const card = cardOf.get(event.target.closest(".card"));
  if (card) current = card;
  const button = event.target.closest(".decide button");
  if (button) decide(card.row, button.dataset.word);
});

for (const id of ["search", "verdict", "source", "decided"]) find(id).addEventListener("input", show);
find("undo").addEventListener("click", undo);
find("keys").addEventListener("click", () => open("keys-dialog"));
find("save").addEventListener("click", () => open("save-dialog"));
find("text").addEventListener("focus", () => find("text").select());
window.addEventListener("beforeunload", (event) => {
  if (!kept && decisions.size) event.preventDefault();
});

document.documentElement.classList.add("scripted");
if (find("source").options.length < 3) find("source").hidden = true;
load();
show();
