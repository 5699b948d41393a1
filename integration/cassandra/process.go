package cassandra

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"text/template"
)

//go:embed cassandra.yaml.tmpl
var yamlText string

//go:embed logback.xml
var logback []byte

//go:embed jvm.options
var jvmOptions string

var yaml = template.Must(template.New("cassandra.yaml").Parse(yamlText))

// tokens split the ring in three.
var tokens = [3]string{"-9223372036854775808", "-3074457345618258603", "3074457345618258602"}

// process is one Cassandra. There is one per JVM, since it keeps its state in statics.
type process struct {
	Options
	Address, Seed, Token, Dir string
	Secrets                   *Secrets // nil = everybody is let in
	java, jars                string

	cmd    *exec.Cmd
	done   chan struct{} // closed when it has ended
	killed bool          // by us
}

// prepare writes the configuration.
func (p *process) prepare() error {
	for _, d := range []string{"tmp", "conf", "log"} {
		if err := os.MkdirAll(filepath.Join(p.Dir, d), 0o755); err != nil {
			return err
		}
	}
	var text strings.Builder
	if err := yaml.Execute(&text, p); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(p.Dir, "conf", "cassandra.yaml"), []byte(text.String()), 0o644),
		os.WriteFile(filepath.Join(p.Dir, "conf", "logback.xml"), logback, 0o644))
}

func (p *process) args() ([]string, error) {
	jamm, err := filepath.Glob(filepath.Join(p.jars, "jamm-*.jar"))
	if err != nil || len(jamm) == 0 {
		return nil, fmt.Errorf("no jamm in %s: delete that directory, it is fetched again", p.jars)
	}
	args := append(strings.Fields(jvmOptions), "-javaagent:"+jamm[0],
		"-Dcassandra.config=file://"+p.Dir+"/conf/cassandra.yaml", "-Dcassandra.storagedir="+p.Dir, "-Dcassandra.logdir="+p.Dir+"/log",
		"-Dlogback.configurationFile=file:"+p.Dir+"/conf/logback.xml", "-Dcassandra.triggers_dir="+p.Dir+"/tmp",
		"-Djava.io.tmpdir="+p.Dir+"/tmp", "-cp", p.Dir+"/conf:"+p.jars+"/*")
	return append(args, "org.apache.cassandra.service.CassandraDaemon"), nil
}

// start begins the process. It dies with this one: the kernel ties that to the thread that forked, so one thread is kept
// for it as long as it runs.
func (p *process) start() error {
	args, err := p.args()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	p.cmd, p.done, p.killed = exec.Command(p.java, args...), make(chan struct{}), false
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		defer log.Close()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
		}
	}()
	return <-started
}

func (p *process) log() string { return filepath.Join(p.Dir, "log", "out") }

// signal sends a signal, and for those that end the process waits until it has ended.
func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return err
	}
	if s == syscall.SIGKILL || s == syscall.SIGTERM {
		p.killed = true
		<-p.done
	}
	return nil
}

func (p *process) running() bool {
	if p.done == nil { // never started
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// tail is the end of what the process said.
func (p *process) tail() string {
	b, _ := os.ReadFile(p.log())
	return string(b[max(0, len(b)-4000):])
}
