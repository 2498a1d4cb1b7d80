import { text } from "./text.js";
const show = (value) => { document.getElementById("text").textContent = value; };
show(text);
import.meta.hot.accept("./text.js", (changed) => show(changed.text));
