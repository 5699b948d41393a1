package gateway

import (
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/prometheus/client_golang/prometheus"
)

// parameters turns the framework's words for parts of a path into the document's.
var parameters = strings.NewReplacer(":name", "{name}", "*", "{path}")

// TestDocumentNamesEveryRoute holds the routes that are registered against the paths and methods of openapi.yaml, both ways.
func TestDocumentNamesEveryRoute(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(openapiYAML)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	var documented []string
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			if method != "HEAD" { // goes with nearly every GET
				documented = append(documented, method+" "+path)
			}
		}
	}
	var registered []string
	for _, r := range New(Config{Registry: prometheus.NewRegistry()}).app.GetRoutes(true) {
		if r.Method != "HEAD" {
			registered = append(registered, r.Method+" "+parameters.Replace(r.Path))
		}
	}
	slices.Sort(documented)
	slices.Sort(registered)
	if d, r := strings.Join(documented, "\n"), strings.Join(registered, "\n"); d != r {
		t.Errorf("documented:\n%s\n\nregistered:\n%s", d, r)
	}
}
