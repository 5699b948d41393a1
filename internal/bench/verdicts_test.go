package bench

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
)

// TestVerdicts has each check judge answers that are right, and answers that are wrong in one point each.
func TestVerdicts(t *testing.T) {
	header := map[string]string{"X-Amz-Function-Error": "Unhandled"}
	failed, exited := `{"errorType":"errorString","errorMessage":"as asked"}`, `{"errorType":"Runtime.ExitError","errorMessage":"RequestId: 1 Error: Runtime exited with error: exit status 42"}`
	for name, c := range map[string]struct {
		check  func(i *invoker, scratch string) error
		status int
		header map[string]string
		body   string
		next   string // answer to what comes after it
		works  bool   // does the work before it answers
		right  bool
	}{
		"an error":                   {check: checkError, status: 200, header: header, body: failed, right: true},
		"an error without header":    {check: checkError, status: 200, body: failed},
		"an error with a status":     {check: checkError, status: 502, header: header, body: failed},
		"an error without words":     {check: checkError, status: 200, header: header, body: `{}`},
		"an exit":                    {check: checkExit, status: 200, header: header, body: exited, next: `"well"`, right: true},
		"an exit of another kind":    {check: checkExit, status: 200, header: header, body: failed, next: `"well"`},
		"an exit that is the end":    {check: checkExit, status: 200, header: header, body: exited, next: `"not well"`},
		"an event that is answered":  {check: checkEvent, status: 200, body: `""`},
		"an event with a body":       {check: checkEvent, status: 202, body: `""`},
		"an event that is waited on": {check: checkEvent, status: 202, works: true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var o faultOrder
			if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if o.Do == "nothing" {
				fmt.Fprint(w, c.next)
				return
			}
			if c.works {
				os.WriteFile(o.File, nil, 0o600)
			}
			for k, v := range c.header {
				w.Header().Set(k, v)
			}
			w.WriteHeader(c.status)
			fmt.Fprint(w, c.body)
		}))
		if err := c.check(newInvoker(server.URL, faultName, ""), t.TempDir()); (err == nil) != c.right {
			t.Errorf("%s: %v", name, err)
		}
		server.Close()
	}
}
