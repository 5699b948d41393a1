package integration

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The published verification library for Node.js, of this version, judges our deliveries.
const standardWebhooksNPM = "standardwebhooks@1.0.0"

// verifier is a webhook endpoint in Node.js: it consents, verifies each delivery with the secret in a file, and prints the verdict with the id.
const verifier = `
const { Webhook } = require('standardwebhooks');
const http = require('http'), fs = require('fs');
const server = http.createServer((req, res) => {
  if (req.method === 'OPTIONS') {
    res.setHeader('WebHook-Allowed-Origin', '*');
    res.setHeader('WebHook-Allowed-Rate', '*');
    return res.end();
  }
  const chunks = [];
  req.on('data', c => chunks.push(c));
  req.on('end', () => {
    const body = Buffer.concat(chunks);
    let verdict = 'verified';
    try {
      new Webhook(fs.readFileSync(process.argv[2], 'utf8').trim()).verify(body.toString('utf8'), req.headers);
    } catch (e) {
      if (e.name !== 'SyntaxError') verdict = 'refused ' + e; // the library parses JSON after it has verified
    }
    console.log(req.headers['handfast-message-id'] + ' ' + body.length + ' ' + verdict);
    res.end();
  });
});
server.listen(0, '127.0.0.1', () => console.log('http://127.0.0.1:' + server.address().port + '/hook'));
`

// npmInstall puts an npm package where Node.js finds it, once for this machine.
func npmInstall(t *testing.T, pkg string) string {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Fatal("this test needs Node.js with npm: install them")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "handfast", "npm-"+strings.NewReplacer("@", "-", "/", "-").Replace(pkg))
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err == nil {
		return dir
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	install := exec.Command("npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--no-package-lock", pkg)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm install %s: %v\n%s", pkg, err, out)
	}
	return dir
}

func TestStandardWebhooksLibraryOfNodeVerifiesDeliveries(t *testing.T) {
	if testing.Short() {
		t.Skip("needs npm packages")
	}
	packages := npmInstall(t, standardWebhooksNPM)
	dir := t.TempDir()
	script, secretFile := filepath.Join(packages, "verifier-"+rand.Text()+".js"), filepath.Join(dir, "secret")
	if err := os.WriteFile(script, []byte(verifier), 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(script)
	node := exec.Command("node", script, secretFile)
	node.Stderr = os.Stderr
	node.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := node.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { node.Process.Kill(); node.Wait() }()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the endpoint did not start")
	}
	url := lines.Text()

	p := start(t, filepath.Join(dir, "data"), "127.0.0.1:0")
	topic := newTopic(t, p, p.token, object{"topic_name": "signed", "rule_id": "open"})
	var sub struct {
		ID      int64 `json:"subscription_id"`
		State   string
		Secrets []string
	}
	must(t, p, p.token, "POST", "/subscribe", object{"topic_id": topic, "target": object{"type": "webhook", "url": url}}, &sub)
	if sub.State != "active" || len(sub.Secrets) != 1 {
		t.Fatalf("%+v", sub)
	}
	writeSecret := func() {
		if err := os.WriteFile(secretFile, []byte(sub.Secrets[0]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeSecret()
	verified := func(content string) {
		t.Helper()
		var m struct {
			ID int64 `json:"message_id"`
		}
		must(t, p, p.token, "POST", "/publish_message", object{"topic_id": topic, "message_content": content}, &m)
		got := make(chan string, 1)
		go func() {
			lines.Scan()
			got <- lines.Text()
		}()
		select {
		case line := <-got:
			if line != fmt.Sprintf("%d %d verified", m.ID, len(content)) {
				t.Fatal(line)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("no delivery")
		}
	}
	for _, content := range []string{`{"type":"order.created","data":{"a":1}}`, `{"b": 2,   "a":1}`, "plain words", "ünïcode € 😀", strings.Repeat("x", 1<<20)} {
		verified(content)
	}
	old := sub.Secrets[0]
	must(t, p, p.token, "POST", "/rotate_secret", object{"subscription_id": sub.ID}, &sub)
	if sub.Secrets[0] == old || len(sub.Secrets) != 2 {
		t.Fatalf("rotation: %+v", sub)
	}
	verified("still signed with the former secret") // the endpoint has not changed its secret yet
	writeSecret()
	verified("and with the new one")
}

// TestContentIsKeptByteForByte publishes bytes that are no text, as raw bodies, and compares what is pulled.
func TestContentIsKeptByteForByte(t *testing.T) {
	p := start(t, filepath.Join(t.TempDir(), "data"), "127.0.0.1:0")
	topic := newTopic(t, p, p.token, object{"topic_name": "bytes", "rule_id": "open"})
	must(t, p, p.token, "POST", "/subscribe", object{"topic_id": topic}, nil)
	exact := make([]byte, 1<<20)
	rand.Read(exact)
	for name, content := range map[string][]byte{"empty": {}, "NUL": {0}, "invalid UTF-8": {0xff, 0xfe, 'a', 0xc0}, "1 MiB exactly": exact, "JSON": []byte("{\"b\":1,\n \"a\":2}")} {
		req, err := http.NewRequest("POST", fmt.Sprintf("%s/publish_message?topic_id=%d", p.url, topic), strings.NewReader(string(content)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+p.token)
		req.Header.Set("Content-Type", "application/octet-stream")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s", name, resp.StatusCode, answer)
		}
		var got struct {
			ID      int64   `json:"message_id"`
			Content *string `json:"message_content"`
			Base64  []byte  `json:"message_content_base64"`
			Type    string  `json:"content_type"`
		}
		must(t, p, p.token, "GET", fmt.Sprintf("/message?topic_id=%d&wait=10", topic), nil, &got)
		have := got.Base64
		if got.Content != nil {
			have = []byte(*got.Content)
		}
		if got.Content == nil && got.Base64 == nil {
			t.Errorf("%s: no content is shown", name)
		}
		if string(have) != string(content) || got.Type != "application/octet-stream" {
			t.Errorf("%s: %d bytes came back as %d, %s", name, len(content), len(have), got.Type)
		}
		must(t, p, p.token, "POST", "/ack", object{"topic_id": topic, "message_ids": []int64{got.ID}}, nil)
	}
}
