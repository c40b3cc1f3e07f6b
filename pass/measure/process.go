// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/collage-tvm/collage/internal/stderrtail"
	"github.com/collage-tvm/collage/internal/tracefile"
)

// maxLine is the longest reply that is read.
const maxLine = 64 << 20

// process is one running worker. It is used by one goroutine at a time.
type process struct {
	command *exec.Cmd
	stdin   *os.File
	lines   chan []byte   // the worker's output; closed at its end
	exited  chan struct{} // closed when the process has been reaped
	stderr  *stderrtail.Tail
	lastID  int
	most    int64 // bytes that it may hold; 0 for as many as it likes
	served  int   // requests that were finished
	killed  bool
	pauses
	// track is where the recording has what it does, and request what it was asked for last.
	track   *tracefile.Track
	request *tracefile.Span
	built   bool // what is asked for was built, and runs
}

// reasons for which a worker gives no answer
var (
	errTimeout = errors.New("time limit")
	errMemory  = errors.New("memory limit")
)

// memoryInterval is how often a working worker's memory is looked at.
const memoryInterval = 50 * time.Millisecond

// exitError is the end of a worker in the middle of a request.
type exitError struct {
	state  *os.ProcessState
	stderr string
}

func (e *exitError) Error() string {
	text := "the worker ended: " + e.state.String()
	if e.stderr != "" {
		text += ": " + e.stderr
	}
	return text
}

// protocolError is an output of the worker that is no answer.
type protocolError struct{ text string }

func (e *protocolError) Error() string { return e.text }

// startProcess starts a worker and waits for its hello. dir is its working and temporary folder, role what the recording
// calls it.
func startProcess(ctx context.Context, o *Options, dir, role string) (*process, error) {
	p, err := launch(o, dir, role)
	if err != nil {
		return nil, err
	}
	if err := p.greet(ctx, o); err != nil {
		return nil, err
	}
	return p, nil
}

// launch starts a worker in a process group of its own. Before it is asked for anything it must be greeted.
func launch(o *Options, dir, role string) (*process, error) {
	p := &process{lines: make(chan []byte), exited: make(chan struct{}), stderr: &stderrtail.Tail{},
		most: o.MemoryLimit}
	p.command = exec.Command(o.Command[0], o.Command[1:]...)
	p.command.Dir = dir
	p.command.Env = append(os.Environ(), "TMPDIR="+dir, "TOPHUB_LOCATION=NONE", "PYTHONUNBUFFERED=1",
		"TVM_NUM_THREADS="+strconv.Itoa(o.Threads))
	p.command.Env = append(p.command.Env, o.Env...)
	// A terminal's Ctrl-C goes to the foreground group: the worker must not die of it before it is asked to. Should
	// this process be killed, the kernel ends the worker.
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	// Own pipes: exec's would make Wait depend on grandchildren that hold them.
	childIn, stdin, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("measure: starting a worker: %w", err)
	}
	defer childIn.Close()
	stdout, childOut, err := os.Pipe()
	if err != nil {
		stdin.Close()
		return nil, fmt.Errorf("measure: starting a worker: %w", err)
	}
	defer childOut.Close()
	stderr, childErr, err := os.Pipe()
	if err != nil {
		stdin.Close()
		stdout.Close()
		return nil, fmt.Errorf("measure: starting a worker: %w", err)
	}
	defer childErr.Close()
	p.stdin = stdin
	p.command.Stdin, p.command.Stdout, p.command.Stderr = childIn, childOut, childErr

	if err := p.command.Start(); err != nil {
		stdin.Close()
		stdout.Close()
		stderr.Close()
		return nil, fmt.Errorf("measure: starting a worker: %w", err)
	}
	p.track = o.Trace.Process(p.command.Process.Pid, role)
	p.stops = p.track.Beside("stopped")
	p.request = p.track.Begin("starting", nil)
	var readers sync.WaitGroup
	readers.Go(func() { defer stderr.Close(); _, _ = io.Copy(p.stderr, stderr) })
	readers.Go(func() { defer stdout.Close(); defer close(p.lines); p.read(stdout) })
	go func() {
		_ = p.command.Wait()
		// What the worker started (a linker, a helper) must not outlive it, nor hold its pipes.
		_ = syscall.Kill(-p.command.Process.Pid, syscall.SIGKILL)
		// A descendant that has left the group may hold the pipes still; what is in them is read at once.
		_ = stdout.SetReadDeadline(time.Now().Add(time.Second))
		_ = stderr.SetReadDeadline(time.Now().Add(time.Second))
		readers.Wait()
		close(p.exited)
	}()

	return p, nil
}

// greet waits for the worker's hello. On an error the worker is gone.
func (p *process) greet(ctx context.Context, o *Options) error {
	p.lastID++
	if err := p.send(helloMessage{ID: p.lastID, Op: "hello"}); err == nil {
		r, _, err := p.receive(ctx, o.StartTimeout)
		if err != nil || r.Event != "hello" {
			p.kill()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err == nil {
				err = fmt.Errorf("its first message is %q %s", r.Event, r.Detail)
			}
			if errors.Is(err, errTimeout) {
				err = fmt.Errorf("no hello within %v: %s", o.StartTimeout, p.stderr)
			}
			return fmt.Errorf("measure: the worker `%s` does not start: %w", strings.Join(o.Command, " "), err)
		}
		return nil
	}
	// It has ended before it read anything.
	p.kill()
	return fmt.Errorf("measure: the worker `%s` does not start: %w", strings.Join(o.Command, " "), p.exit())
}

// read hands on the worker's lines until it has no more.
func (p *process) read(stdout io.Reader) {
	reader := bufio.NewReaderSize(stdout, 1<<16)
	var line []byte
	for {
		part, err := reader.ReadSlice('\n')
		if len(line)+len(part) <= maxLine { // the rest of a longer one is dropped; it is no valid JSON then
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if len(bytes.TrimSpace(line)) > 0 {
			p.lines <- bytes.Clone(line)
		}
		line = line[:0]
		if err != nil {
			return
		}
	}
}

// send writes a message. It does not wait for the worker to read it.
func (p *process) send(message any) error {
	line, err := json.Marshal(message)
	if err != nil {
		return err
	}
	p.asked(message)
	written := make(chan error, 1)
	go func() {
		_, err := p.stdin.Write(append(line, '\n'))
		written <- err
	}()
	select {
	case err := <-written:
		return err
	case <-time.After(100 * time.Millisecond):
		// A long message and a slow reader: receive sees to the time limit, and kill breaks the pipe.
		return nil
	}
}

// receive waits for the next message that answers the last one sent. The raw line comes with it.
func (p *process) receive(ctx context.Context, limit time.Duration) (reply, []byte, error) {
	started, paused := time.Now(), p.total()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	memory := time.NewTicker(memoryInterval)
	defer memory.Stop()
	for {
		select {
		case <-memory.C:
			if p.most > 0 && p.memory() > p.most {
				return reply{}, nil, errMemory
			}
		case line, ok := <-p.lines:
			if !ok {
				return reply{}, nil, p.exit()
			}
			var r reply
			if err := json.Unmarshal(line, &r); err != nil || r.Event == "" {
				return reply{}, nil, &protocolError{fmt.Sprintf("the worker wrote %q, which is no message",
					excerpt(line))}
			}
			if r.ID < p.lastID {
				continue // an answer that came too late
			}
			if r.ID > p.lastID {
				return reply{}, nil, &protocolError{fmt.Sprintf("the worker answered request %d, the last one is %d",
					r.ID, p.lastID)}
			}
			p.answered(&r)
			return r, line, nil
		case <-timer.C:
			// What it did not run for does not count.
			if left := limit - time.Since(started) + p.total() - paused; left > 0 {
				timer.Reset(left)
				continue
			}
			return reply{}, nil, errTimeout
		case <-ctx.Done():
			return reply{}, nil, ctx.Err()
		}
	}
}

// exit waits for the process to be reaped and says how it ended.
func (p *process) exit() *exitError {
	select {
	case <-p.exited:
	case <-time.After(time.Second):
		p.kill() // it has closed its output and lives on
	}
	return &exitError{state: p.command.ProcessState, stderr: p.stderr.String()}
}

// kill ends the worker and all its children, and waits for it.
func (p *process) kill() {
	if !p.killed {
		p.killed = true
		p.request.End(tracefile.Details{"outcome": "the worker was ended"})
		p.stdin.Close()
		select {
		case <-p.exited: // reaped: its number may be another's by now
		default:
			_ = syscall.Kill(-p.command.Process.Pid, syscall.SIGKILL)
		}
	}
	lines := p.lines
	for {
		select {
		case _, ok := <-lines: // the reader may be waiting for somebody to take a line
			if !ok {
				lines = nil
			}
		case <-p.exited:
			return
		}
	}
}

// quit asks the worker to end and kills it if it does not.
func (p *process) quit() {
	p.stdin.Close()
	p.resume()
	timer := time.NewTimer(2 * time.Second)
	defer timer.Stop()
	lines := p.lines
	for {
		select {
		case _, ok := <-lines:
			if !ok {
				lines = nil
			}
		case <-p.exited:
			return
		case <-timer.C:
			p.kill()
			return
		}
	}
}

// memory is what the process holds, in bytes; 0 where it cannot be known.
func (p *process) memory() int64 {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.command.Process.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(content))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// halfOfMemory is half of the machine's memory in bytes.
func halfOfMemory() int64 {
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		return 4 << 30
	}
	return int64(info.Totalram) * int64(info.Unit) / 2
}

// excerpt is the beginning of a line.
func excerpt(line []byte) string {
	const most = 200
	if len(line) > most {
		return string(line[:most]) + "..."
	}
	return string(bytes.TrimSpace(line))
}
