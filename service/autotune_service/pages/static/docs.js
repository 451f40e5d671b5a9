"use strict";
// The reference of the HTTP interface: Swagger UI over our own description, and nobody else's.
SwaggerUIBundle({
  dom_id: "#reference",
  url: "/openapi.json",
  deepLinking: true,
  presets: [SwaggerUIBundle.presets.apis],
  validatorUrl: null,
  supportedSubmitMethods: ["get", "head", "post"],
});
