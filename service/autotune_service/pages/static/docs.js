"use strict";
// The reference of the HTTP interface: Swagger UI over our own description, and nobody else's.
SwaggerUIBundle({
  dom_id: "#reference",
  url: "/openapi.json",
  deepLinking: false, // its links would stand inside of buttons
  presets: [SwaggerUIBundle.presets.apis],
  plugins: [() => ({ wrapComponents: { InfoContainer: () => () => null } })], // our own head says it
  validatorUrl: null,
  supportedSubmitMethods: ["get", "head", "post"],
});

// Its own dark colours, where the page is dark.
const dark = matchMedia("(prefers-color-scheme: dark)");
function follow() {
  const chosen = document.documentElement.dataset.theme;
  document.documentElement.classList.toggle("dark-mode", chosen ? chosen === "dark" : dark.matches);
}
follow();
dark.addEventListener("change", follow);
new MutationObserver(follow).observe(document.documentElement, { attributeFilter: ["data-theme"] });
