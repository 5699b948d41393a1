package cassandra

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// version of Apache Cassandra, the same as in pom.xml.
const version = "5.0.8"

//go:embed pom.xml
var pom []byte

// jars returns the directory with Cassandra's jars. The first call on a machine fetches them with Maven, 67 MB, into the
// user's cache; it is complete or absent, so that a fetch that was cut off is done again.
func jars(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a cache directory for Cassandra's jars: %w", err)
	}
	parent := filepath.Join(cache, "handfast")
	dir := filepath.Join(parent, "cassandra-"+version)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return "", fmt.Errorf("Maven fetches Cassandra %s for the cluster tests and is not here: install Maven and JDK 17, or set %s", version, HostsVariable)
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(parent, "fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	file := filepath.Join(tmp, "pom.xml")
	if err := os.WriteFile(file, pom, 0o644); err != nil {
		return "", err
	}
	lib := filepath.Join(tmp, "lib")
	out, err := exec.CommandContext(ctx, mvn, "-q", "-B", "-f", file, "dependency:copy-dependencies", "-DoutputDirectory="+lib).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("fetch Cassandra %s with Maven: %w\n%s", version, err, out)
	}
	if err := os.Rename(lib, dir); err != nil && !exists(dir) { // another process may have been faster
		return "", err
	}
	return dir, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// java returns the path of a Java 17: Cassandra 5.0 runs on 11 and 17, and no later one will do.
func java() (string, error) {
	candidates := []string{filepath.Join(os.Getenv("JAVA_HOME"), "bin", "java"), "java"}
	more, _ := filepath.Glob("/usr/lib/jvm/*17*/bin/java")
	for _, c := range append(candidates, more...) {
		out, err := exec.Command(c, "-version").CombinedOutput()
		if err == nil && strings.Contains(string(out), `version "17`) {
			return c, nil
		}
	}
	return "", fmt.Errorf("Java 17 runs Cassandra %s for the cluster tests and is not here: install JDK 17 and Maven, or set %s", version, HostsVariable)
}
