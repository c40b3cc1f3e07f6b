// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/collage-tvm/collage/internal/stderrtail"
)

// Ours is the name of what Collage compiled, among the peers.
const Ours = "collage"

// tvmEngine is plain TVM among the peers; it also writes the network for the others.
const tvmEngine = "tvm"

// Peer is an engine that networks are run on beside Collage.
type Peer struct {
	Name string
	// Package is the Python package that it needs; "" for what every installation has.
	Package string
	// Remedy says how to get it.
	Remedy string
}

// Peers are all that are known, in the order of the columns.
var Peers = []Peer{
	{Name: tvmEngine},
	{Name: "tvm-collage"},
	{Name: "onnxruntime", Package: "onnxruntime",
		Remedy: "make backends BACKENDS=onnxruntime, or pip install onnxruntime"},
	{Name: "onnxruntime-int8", Package: "onnxruntime",
		Remedy: "make backends BACKENDS=onnxruntime, or pip install onnxruntime"},
	{Name: "openvino", Package: "openvino", Remedy: openvinoRemedy},
	{Name: "openvino-default", Package: "openvino", Remedy: openvinoRemedy},
	{Name: "openvino-int8", Package: "nncf", Remedy: openvinoRemedy + "; and make peers, or pip install nncf"},
	{Name: "torch", Package: "torch", Remedy: torchRemedy},
	{Name: "torch-bf16", Package: "torch", Remedy: torchRemedy},
	{Name: "torch-compile", Package: "torch", Remedy: torchRemedy},
}

const openvinoRemedy = "make backends BACKENDS=openvino, or pip install openvino"

const torchRemedy = "make peers, or pip install torch (with what PyPI's brings along it takes 6 GB)"

// usesTVM says that a peer's process must be able to import TVM.
func usesTVM(name string) bool { return name == Ours || strings.HasPrefix(name, "tvm") }

// installed asks an interpreter which packages it has, without importing them: their versions, "unknown" for one that
// was put there without pip. Errors: errNoPeers where Collage is there and its peers are not.
func installed(ctx context.Context, python string, packages []string) (map[string]string, error) {
	const ask = `import importlib.metadata, importlib.util, json, os, sys

def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"

ours = importlib.util.find_spec("collage")
if ours is not None and not os.path.exists(os.path.join(os.path.dirname(ours.origin), "peers")):
    print(json.dumps(None))
else:
    print(json.dumps({name: version(name) for name in sys.argv[1:] if importlib.util.find_spec(name) is not None}))`
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	text, err := exec.CommandContext(ctx, python, append([]string{"-c", ask}, packages...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("%s does not work as a Python interpreter: %w", python, err)
	}
	found := map[string]string{}
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, fmt.Errorf("%s does not work as a Python interpreter: it printed %q", python, text)
	}
	if found == nil {
		return nil, errNoPeers
	}
	return found, nil
}

// errNoPeers says that the engines cannot be run: what runs them (python/collage/peers) is no part of the wheel.
var errNoPeers = errors.New("what runs other engines is in Collage's source tree and not in the installed package: " +
	"run collage bench from the source tree (make setup, .venv/bin/collage)")

// withoutPeers is what Python says where errNoPeers is the reason.
const withoutPeers = "No module named collage.peers"

// process is one peer at work on one network. Between calls of ask it is stopped, so that none of its threads runs.
type process struct {
	name    string
	command *exec.Cmd
	stdin   *os.File
	stdout  *os.File
	lines   chan []byte
	stderr  *stderrtail.Tail
	done    sync.WaitGroup
}

// startPeer starts a peer's process. env is what its environment has beside this one's.
func startPeer(python, name string, threads int, env []string) (*process, error) {
	p := &process{name: name, lines: make(chan []byte, 1), stderr: &stderrtail.Tail{}}
	p.command = exec.Command(python, "-m", "collage.peers", name)
	n := strconv.Itoa(threads)
	p.command.Env = append(os.Environ(), "TOPHUB_LOCATION=NONE", "TVM_NUM_THREADS="+n, "COLLAGE_NUM_THREADS="+n,
		"OMP_NUM_THREADS="+n)
	p.command.Env = append(p.command.Env, env...)
	// A group of its own: it is stopped and ended with all that it starts. Should this process be killed, the kernel
	// ends it.
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	childIn, stdin, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer childIn.Close()
	stdout, childOut, err := os.Pipe()
	if err != nil {
		stdin.Close()
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer childOut.Close()
	p.stdin, p.stdout = stdin, stdout
	p.command.Stdin, p.command.Stdout, p.command.Stderr = childIn, childOut, p.stderr
	p.command.WaitDelay = time.Second
	if err := p.command.Start(); err != nil {
		stdin.Close()
		stdout.Close()
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p.done.Go(func() {
		defer close(p.lines)
		defer stdout.Close()
		reader := bufio.NewReader(stdout)
		for {
			line, err := reader.ReadBytes('\n')
			if err != nil {
				return
			}
			p.lines <- line
		}
	})
	return p, nil
}

// ask sends a request and reads the answer into answer. The process runs only meanwhile. An error that the peer reports
// is a *peerError; after any other the process has ended.
func (p *process) ask(ctx context.Context, limit time.Duration, request map[string]any, answer any) error {
	line, err := json.Marshal(request)
	if err != nil {
		return err
	}
	p.signal(syscall.SIGCONT)
	if _, err := p.stdin.Write(append(line, '\n')); err != nil {
		return p.ended()
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case got, alive := <-p.lines:
		if !alive {
			return p.ended()
		}
		p.signal(syscall.SIGSTOP)
		var said struct {
			Error string `json:"error"`
		}
		if err := json.Unmarshal(got, &said); err != nil {
			return fmt.Errorf("%s wrote %q, which is no answer", p.name, bytes.TrimSpace(got))
		}
		if said.Error != "" {
			return &peerError{said.Error}
		}
		return json.Unmarshal(got, answer)
	case <-timer.C:
		p.end()
		return fmt.Errorf("no answer within %v", limit)
	case <-ctx.Done():
		p.end()
		return ctx.Err()
	}
}

// peerError is what a peer says about a network that it cannot run.
type peerError struct{ text string }

func (e *peerError) Error() string { return e.text }

func (p *process) signal(s syscall.Signal) {
	if p.command.ProcessState == nil {
		_ = syscall.Kill(-p.command.Process.Pid, s)
	}
}

// ended says how a process ended by itself.
func (p *process) ended() error {
	p.end()
	text := p.command.ProcessState.String()
	said := p.stderr.LastLine()
	if strings.HasSuffix(said, withoutPeers) {
		return errNoPeers
	}
	if said != "" {
		text += ": " + said
	}
	return errors.New("its process ended: " + text)
}

// end kills the process and all that it started, and waits for it. It may be called again.
func (p *process) end() {
	if p.command.ProcessState != nil {
		return
	}
	_ = syscall.Kill(-p.command.Process.Pid, syscall.SIGKILL)
	p.stdin.Close()
	go func() { // the reader may be waiting for somebody to take a line
		for range p.lines {
		}
	}()
	_ = p.command.Wait()
	// A descendant that has left the group may hold the pipe still.
	_ = p.stdout.SetReadDeadline(time.Now().Add(time.Second))
	p.done.Wait()
}
