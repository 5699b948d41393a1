package runtime

import (
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/handfast-mq/handfast/functions/artifact"
	"github.com/handfast-mq/handfast/schema"
)

// initTimeout is how long an instance may take until it first asks for work.
const initTimeout = 10 * time.Second

// filesMax bounds the open files of one process of an instance, as Lambda does.
const filesMax = 1024

// job is one invocation on its instance.
type job struct {
	call     *schema.Invocation
	begun    time.Time
	deadline time.Time
	done     chan *schema.Invoked // gets exactly one
	timer    *time.Timer
	taken    bool // by the runtime
	answered bool
}

// instance is one process of a function with its own listener for the Runtime API. The process works on one invocation at a time and is
// free again when it asks for the next.
type instance struct {
	pool *pool
	id   string
	dir  string // with its working directory, gone with it
	logs *tail
	// group has all its processes; nil where the machine gives none.
	group *cgroup

	listener net.Listener
	server   *http.Server
	cmd      *exec.Cmd

	jobs chan *job     // to the runtime's open request for the next
	dead chan struct{} // closed when all its processes are gone

	mu        sync.Mutex
	asking    bool // the runtime waits for the next
	current   *job
	why       string           // it was killed by the node; "" = it was not
	initError *schema.Invoked  // what it reported while it started
	state     *os.ProcessState // after its end
	initTimer *time.Timer

	// Of the pool, under its lock.
	ready     bool
	finishing bool // it has answered and did not ask for more work yet
	idleSince time.Time
}

// The node's reasons to kill an instance.
const (
	killedIdle     = "idle"
	killedTimeout  = "timeout"
	killedMemory   = "memory"
	killedInit     = "init timeout"
	killedLost     = "connection lost"
	killedShutdown = "shutdown"
)

// newInstance starts a process. It comes to the pool by itself when it asks for work, and leaves it by itself when it ends.
func (p *pool) newInstance(code string) (err error) {
	i := &instance{pool: p, id: uuid.NewString(), jobs: make(chan *job, 1), dead: make(chan struct{})}
	i.dir = filepath.Join(p.host.runDir(), i.id)
	defer func() {
		if err != nil {
			i.discard()
		}
	}()
	for _, dir := range []string{i.workDir(), i.tempDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if i.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	if i.logs, err = newTail(p.log); err != nil {
		return err
	}
	i.server = &http.Server{Handler: i, ErrorLog: discardLog}
	if err := i.start(code); err != nil {
		return err
	}
	i.initTimer = time.AfterFunc(initTimeout, func() { i.kill(killedInit) })
	p.add(i)
	p.host.work.Go(func() { i.server.Serve(i.listener) }) // ends with the listener
	p.host.work.Go(i.reap)
	return nil
}

func (i *instance) workDir() string { return filepath.Join(i.dir, "work") }
func (i *instance) tempDir() string { return filepath.Join(i.dir, "tmp") }

func (i *instance) discard() {
	if i.listener != nil {
		i.listener.Close()
	}
	if i.logs != nil {
		i.logs.close()
	}
	if i.group != nil {
		i.group.end()
	}
	os.RemoveAll(i.dir)
}

func (i *instance) start(code string) (err error) {
	i.cmd = exec.Command(filepath.Join(code, artifact.Bootstrap))
	i.cmd.Dir, i.cmd.Env = i.workDir(), i.environment(code)
	i.cmd.Stdout, i.cmd.Stderr = i.logs.writer, i.logs.writer
	// A group of its own, so that it can be killed with the children that it forks; and it goes with the node, however that ends.
	i.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if groups := i.pool.host.cgroups; groups != nil {
		if i.group, err = groups.add(i.id, i.pool.version.Memory); err != nil {
			return err
		}
		done, err := i.group.take(i.cmd.SysProcAttr)
		if err != nil {
			return err
		}
		defer done()
	}
	err = i.pool.host.starter.start(i.cmd)
	i.logs.started()
	if err != nil {
		return err
	}
	if i.group == nil {
		if err := writeGroup(i.dir, i.cmd.Process.Pid); err != nil {
			i.pool.host.opts.Logger.Warn("an instance's processes could not be noted", "function", i.pool.name, "err", err)
		}
	}
	for resource, n := range map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: filesMax} {
		unix.Prlimit(i.cmd.Process.Pid, resource, &unix.Rlimit{Cur: n, Max: n}, nil) // it may be gone already
	}
	return nil
}

// environment is all that a handler gets to know: nothing of the node's own environment but where programs and times are.
func (i *instance) environment(code string) []string {
	f, v := i.pool.function(), i.pool.version
	env := []string{
		"AWS_LAMBDA_RUNTIME_API=" + i.listener.Addr().String(),
		"AWS_LAMBDA_FUNCTION_NAME=" + f.Name,
		"AWS_LAMBDA_FUNCTION_VERSION=" + strconv.Itoa(v.Number),
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE=" + strconv.Itoa(v.Memory),
		"AWS_LAMBDA_LOG_GROUP_NAME=" + f.Name,
		instanceMark + i.id,
		"AWS_LAMBDA_INITIALIZATION_TYPE=on-demand",
		"_HANDLER=" + v.Handler,
		"LAMBDA_TASK_ROOT=" + code,
		"TMPDIR=" + i.tempDir(),
		"LANG=C.UTF-8", "TZ=UTC",
		"PATH=" + i.pool.host.opts.Path,
	}
	for name, value := range v.Env {
		env = append(env, name+"="+value)
	}
	return env
}

// run gives the instance one invocation and returns how it ended. false: the instance was gone before its runtime had taken the invocation.
func (i *instance) run(call *schema.Invocation) (*schema.Invoked, bool) {
	timeout := i.pool.version.Timeout
	j := &job{call: call, begun: time.Now(), done: make(chan *schema.Invoked, 1)}
	j.deadline = j.begun.Add(timeout)
	i.logs.begin(call.RequestID, i.pool.version.Number)
	i.mu.Lock()
	i.current = j
	j.timer = time.AfterFunc(timeout, func() { i.expire(j) })
	i.mu.Unlock()
	i.jobs <- j
	var answer *schema.Invoked
	select {
	case answer = <-j.done:
	case <-i.dead:
		select {
		case answer = <-j.done:
		default:
			i.mu.Lock()
			taken := j.taken
			i.mu.Unlock()
			if !taken {
				return nil, false
			}
			answer = i.exited(call.RequestID, timeout)
		}
	}
	answer.Version = i.pool.version.Number
	answer.Log = i.logs.end(call.RequestID, time.Since(j.begun))
	return answer, true
}

// expire ends an invocation whose time is over, or whose runtime did not ask for the next after its answer.
func (i *instance) expire(j *job) {
	i.mu.Lock()
	over := i.current == j
	i.mu.Unlock()
	if over {
		i.kill(killedTimeout)
	}
}

// answer ends the current invocation for its caller. false: there is none of this id, or it has its answer, were it that of the node, which
// kills the instance.
func (i *instance) answer(id string, a *schema.Invoked) (known, first bool) {
	i.mu.Lock()
	j := i.current
	known = j != nil && j.call.RequestID == id
	first = known && !j.answered && i.why == ""
	if first {
		j.answered = true
	}
	i.mu.Unlock()
	if first {
		i.pool.finishes(i)
		j.done <- a
	}
	return known, first
}

// kill ends the processes. The first reason counts.
func (i *instance) kill(why string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.why == "" {
		i.why = why
	}
	switch {
	case i.state != nil:
	case i.group != nil:
		i.group.kill()
	default:
		syscall.Kill(-i.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// reap waits for the end of the process and clears up after it: children that it left, its listener, its directory.
func (i *instance) reap() {
	err := i.cmd.Wait()
	i.initTimer.Stop()
	ranOut := i.endChildren()
	i.mu.Lock()
	i.state = i.cmd.ProcessState
	if ranOut && i.why == "" {
		i.why = killedMemory
	}
	if i.current != nil {
		i.current.timer.Stop()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		i.pool.host.opts.Logger.Warn("an instance's end is not known", "function", i.pool.name, "err", err)
	}
	i.mu.Unlock()
	i.server.Close()
	i.logs.close()
	os.RemoveAll(i.dir)
	close(i.dead)
	i.pool.gone(i)
}

// endChildren ends what the process forked, and tells whether its end was that of its memory.
func (i *instance) endChildren() (ranOut bool) {
	if i.group == nil {
		syscall.Kill(-i.cmd.Process.Pid, syscall.SIGKILL)
		killMarked(func(id string) bool { return id == i.id }) // what left the process group
		return false
	}
	ranOut = i.group.ranOut()
	if err := i.group.end(); err != nil {
		i.pool.host.opts.Logger.Warn("an instance's control group could not be removed", "function", i.pool.name, "err", err)
	}
	return ranOut
}

// endAfterInitError gives a process that reported that it cannot start a moment to end by itself.
func (i *instance) endAfterInitError() {
	moment := time.NewTimer(time.Second)
	defer moment.Stop()
	select {
	case <-i.dead:
	case <-moment.C:
		i.kill(killedInit)
	}
}
