// Markdown of a model as nodes. What a model says is hostile: only the tags and attributes below are left of it.

import { library } from "./dom.js";

const TAGS = ["a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"];
const CLEAN = {
  ALLOWED_TAGS: TAGS,
  ALLOWED_ATTR: ["align", "href", "start"],
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  RETURN_DOM_FRAGMENT: true,
};
let ready = false;

export const hasMarkdown = () => ready;

export async function loadMarkdown() {
  await Promise.all([library("marked.umd.js"), library("purify.min.js")]);
  marked.use({
    gfm: true,
    breaks: true,
    // Below the page's own headings.
    walkTokens: (token) => { if (token.type === "heading") token.depth = Math.min(6, token.depth + 2); },
    // An image would be asked of another server. Its text says what it is, and the policy of the page forbids it, too.
    renderer: {
      html: ({ text }) => escaped(text),
      image: ({ text, href }) => escaped(`[image: ${text || href}]`),
      checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
    },
  });
  DOMPurify.addHook("afterSanitizeAttributes", (node) => {
    if (node.tagName === "A") Object.assign(node, { target: "_blank", rel: "noopener noreferrer" });
    if (node.tagName === "PRE") node.tabIndex = 0; // it scrolls, also by the keyboard
  });
  ready = true;
}

const escaped = (text) => text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);

export const markdown = (text) => DOMPurify.sanitize(marked.parse(text), CLEAN);
