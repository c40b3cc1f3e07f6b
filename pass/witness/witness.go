// SPDX-License-Identifier: Apache-2.0

// Package witness asks an engine that is not TVM what a network answers, so that what TVM read of a model's file can be
// held against it.
//
// What comes in: a question, which the front end makes of the model (collage.frontends.Model.question in Python): the
// file, its inputs, a seed. What goes out: a Testimony: a file with the outputs, or the reason why there are none. The
// engine runs in a process of its own (collage.witness), beside whatever is built meanwhile.
package witness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/collage-tvm/collage/internal/stderrtail"
)

// Testimony is what the engine answered.
type Testimony struct {
	// Engine is its name and version, Answers the file of the outputs (.npz, in the model's order). Loose says that the
	// network is quantised, so that one step of rounding is worth more than the usual tolerance.
	Engine  string `json:"engine"`
	Answers string `json:"-"`
	Loose   bool   `json:"loose"`
	// Unchecked says why there is no answer; "" where there is one.
	Unchecked string `json:"unchecked"`
}

// Agreement is what came of holding a network that TVM built against a Testimony.
type Agreement struct {
	// Engine is the Testimony's.
	Engine string `json:"engine,omitempty"`
	// Share is the largest difference, as a share of the greatest value of its output.
	Share float64 `json:"max_error_share"`
	// Doubt is that of outputs of floating point, as a share of the greatest value of all outputs; 0 where they are
	// known to be rounded to whole numbers on the way (Testimony.Loose).
	Doubt float64 `json:"-"`
	// Otherwise is what an engine answers that was asked first and does not agree; "" where the first one does.
	Otherwise string `json:"otherwise,omitempty"`
	// Unchecked says why nothing was compared; "" where it was.
	Unchecked string `json:"unchecked,omitempty"`
}

// DisagreementError says that TVM read a model otherwise than another engine.
type DisagreementError struct {
	// Engine is the other one, Mismatch says where the outputs differ.
	Engine, Mismatch string
}

func (e *DisagreementError) Error() string {
	return fmt.Sprintf("TVM computes something else than %s does: %s", e.Engine, e.Mismatch)
}

// Witness is an engine at work. A nil Witness is one that nothing was asked.
type Witness struct {
	answers   string // the file
	command   *exec.Cmd
	done      chan struct{} // closed when testimony is there
	testimony Testimony
	late      sync.Once
	second    func() (*Witness, error) // nil for none
	others    []*Witness               // those that were asked besides
}

// evaluating is how many seconds an engine gets that is known to be slow, and doubting how many it gets where the first
// engine does not agree with TVM.
const evaluating, doubting = 5, 30

// Ask starts a process that answers the question; environment is what it has beside this process's ("NAME=value"), and
// folder where the answers go. Close it.
func Ask(python string, environment []string, question json.RawMessage, folder string) (*Witness, error) {
	return start(python, environment, question, folder, false)
}

// Second asks another engine than the one that has answered: engines err, too. It gives that one's testimony. Errors:
// the context's, and what keeps a process from being started.
func (w *Witness) Second(ctx context.Context) (Testimony, error) {
	if w.second == nil {
		return Testimony{Unchecked: "there is no other engine"}, nil
	}
	other, err := w.second()
	if err != nil {
		return Testimony{}, err
	}
	testimony, err := other.Wait(ctx, (doubting+5)*time.Second)
	w.others = append(w.others, other)
	return testimony, err
}

func start(python string, environment []string, question json.RawMessage, folder string, second bool) (*Witness, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(question, &fields); err != nil {
		return nil, fmt.Errorf("the question for another engine is not readable: %w", err)
	}
	file, err := os.CreateTemp(folder, "answers-*.npz")
	if err != nil {
		return nil, fmt.Errorf("asking another engine: %w", err)
	}
	file.Close()
	path, err := json.Marshal(file.Name())
	if err != nil {
		return nil, err
	}
	seconds := evaluating
	if second {
		seconds = doubting
	}
	maps.Copy(fields, map[string]json.RawMessage{"out": path, "seconds": json.RawMessage(fmt.Sprint(seconds)),
		"second": json.RawMessage(fmt.Sprint(second))})
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	w := &Witness{answers: file.Name(), command: exec.Command(python, "-m", "collage.witness"), done: make(chan struct{})}
	w.second = func() (*Witness, error) { return start(python, environment, question, folder, true) }
	var printed bytes.Buffer
	complaints := &stderrtail.Tail{}
	w.command.Stdin, w.command.Stdout, w.command.Stderr = bytes.NewReader(text), &printed, complaints
	w.command.Env = append(os.Environ(), environment...)
	// A terminal's Ctrl-C is for who asked. Should this process be killed, the kernel ends the other one.
	w.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	// What it started and holds its output does not keep it.
	w.command.WaitDelay = time.Second
	if err := w.command.Start(); err != nil {
		_ = os.Remove(w.answers)
		return nil, fmt.Errorf("asking another engine: %w", err)
	}
	go func() {
		defer close(w.done)
		err := w.command.Wait()
		if unreadable := json.Unmarshal(printed.Bytes(), &w.testimony); unreadable != nil {
			w.testimony = Testimony{Unchecked: fmt.Sprintf("the engine's process ended: %v %s", err, complaints)}
			return
		}
		if w.testimony.Unchecked == "" {
			w.testimony.Answers = w.answers
		}
	}()
	return w, nil
}

// Known is a witness that has answered already.
func Known(testimony Testimony) *Witness {
	w := &Witness{done: make(chan struct{}), answers: testimony.Answers, testimony: testimony}
	close(w.done)
	return w
}

// Wait gives the testimony; an engine that has not answered after so long is ended. The error is the context's.
func (w *Witness) Wait(ctx context.Context, limit time.Duration) (Testimony, error) {
	if w == nil {
		return Testimony{}, nil
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
		w.end()
		if w.testimony.Answers == "" {
			w.testimony = Testimony{Unchecked: fmt.Sprintf("the other engine had no answer after another %v", limit)}
		}
	case <-ctx.Done():
		return Testimony{}, ctx.Err()
	}
	return w.testimony, nil
}

// Close ends the engine's process and removes its answers.
func (w *Witness) Close() {
	if w == nil {
		return
	}
	w.end()
	_ = os.Remove(w.answers)
	for _, other := range w.others {
		other.Close()
	}
}

// end ends the process, with what it has started, and waits for it.
func (w *Witness) end() {
	w.late.Do(func() {
		select {
		case <-w.done: // its number may be another's by now
		default:
			_ = syscall.Kill(-w.command.Process.Pid, syscall.SIGKILL)
		}
	})
	<-w.done
}
