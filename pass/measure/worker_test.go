// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test binary be a worker: a real process that speaks the protocol, whose "functions" are orders to
// behave well or badly.
func TestMain(m *testing.M) {
	if os.Getenv("MEASURE_TEST_WORKER") != "" {
		workerProcess(os.Getenv("MEASURE_TEST_WORKER"))
		return
	}
	os.Exit(m.Run())
}

func say(message map[string]any) {
	line, _ := json.Marshal(message)
	fmt.Println(string(line))
}

// logLine notes what the worker did in the file MEASURE_TEST_LOG.
func logLine(text string) {
	file, err := os.OpenFile(os.Getenv("MEASURE_TEST_LOG"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		fmt.Fprintln(file, text)
		file.Close()
	}
}

func workerProcess(kind string) {
	logLine("start")
	switch kind {
	case "dies":
		fmt.Fprintln(os.Stderr, "No module named collage")
		os.Exit(1)
	case "mute":
		time.Sleep(time.Hour)
	case "networks":
		networkWorker()
		return
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	served := 0
	for lines.Scan() {
		var m struct {
			measureMessage
			Models   []Model          `json:"models"`
			Items    []measureMessage `json:"items"`
			Folder   string           `json:"folder"`
			Name     string           `json:"name"`
			Manifest string           `json:"manifest"`
			Rounds   int              `json:"rounds"`
			Sizes    []int            `json:"sizes"`
			Runs     int              `json:"runs"`
			Pause    float64          `json:"pause_s"`
			Ready    bool             `json:"ready"`
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		switch m.Op {
		case "hello":
			say(map[string]any{"id": m.ID, "event": "hello", "tvm": "0.19.0", "pid": os.Getpid()})
		case "compare":
			logLine("compare on " + os.Getenv("TVM_NUM_THREADS") + " threads")
			samples := map[string][]float64{}
			for round := range m.Rounds {
				for i, model := range m.Models {
					if strings.HasSuffix(model.Path, "crash.so") && round == 2 {
						_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
						time.Sleep(time.Hour)
					}
					samples[model.Name] = append(samples[model.Name], float64(i+1))
				}
				say(map[string]any{"id": m.ID, "event": "progress", "round": round + 1})
			}
			say(map[string]any{"id": m.ID, "event": "result", "samples_ms": samples,
				"outputs": map[string]any{m.Models[1].Name: map[string]any{
					"each": []any{map[string]any{"elements": 4, "greatest": 0.5}}}}})
		case "calibrate":
			if m.Ready {
				say(map[string]any{"id": m.ID, "event": "result"})
				continue
			}
			logLine("calibrate")
			reads := make([][]float64, len(m.Sizes))
			for i := range reads {
				reads[i] = []float64{float64(i + 1)}
			}
			say(map[string]any{"id": m.ID, "event": "result", "gflop_ms": []float64{0.7, 0.5, 0.6},
				"read_gib_ms": reads})
		case "build":
			build(m.ID, m.Items, filepath.Join(m.Folder, m.Name))
		case "load":
			content, err := os.ReadFile(m.Manifest)
			logLine("load " + string(content))
			if err != nil || strings.Contains(string(content), "load-error") {
				say(map[string]any{"id": m.ID, "event": "error", "phase": "load", "kind": "error",
					"detail": "no such code"})
				continue
			}
			say(map[string]any{"id": m.ID, "event": "result"})
		case "soak":
			logLine(fmt.Sprint("soak ", m.Runs, " after ", m.Pause))
			order, rest, _ := strings.Cut(m.Function, " ")
			grown := 0
			fmt.Sscan(rest, &grown)
			if order == "crash-soaked" {
				_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
				time.Sleep(time.Hour)
			}
			if order == "puts-off" && m.Pause > 0 {
				grown = 0
			}
			if order == "garbled" {
				say(map[string]any{"id": m.ID, "event": "result", "before_bytes": "many"})
				continue
			}
			say(map[string]any{"id": m.ID, "event": "result", "before_bytes": 1 << 30, "after_bytes": 1<<30 + grown*m.Runs})
		case "forget":
			logLine("forget " + m.Function)
			say(map[string]any{"id": m.ID, "event": "result"})
		case "measure":
			if m.Samples == 0 {
				logLine("prepare " + m.Function)
				prepare(m.measureMessage)
				continue
			}
			if m.Again {
				logLine("again " + m.Function)
			} else {
				logLine(m.Function)
			}
			serve(m.measureMessage, served)
			served++
		}
	}
	os.Exit(0)
}

// build writes a manifest of the functions, or fails as the first of them orders.
func build(id int, items []measureMessage, path string) {
	var functions []string
	for _, item := range items {
		functions = append(functions, item.Function)
	}
	logLine("build " + strings.Join(functions, "; "))
	for _, f := range functions {
		switch order, rest, _ := strings.Cut(f, " "); order {
		case "build-crash":
			_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
			time.Sleep(time.Hour)
		case "build-hang":
			time.Sleep(time.Hour)
		case "build-error":
			say(map[string]any{"id": id, "event": "error", "phase": "build", "kind": "error", "detail": rest})
			return
		case "build-slow":
			for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
				time.Sleep(5 * time.Millisecond)
			}
			logLine("built " + f)
		}
	}
	_ = os.WriteFile(path, []byte(strings.Join(functions, "; ")), 0o600)
	say(map[string]any{"id": id, "event": "result", "manifest": path})
}

// rightOutputs and wrongOutputs are check.seen's of two results.
var (
	rightOutputs = map[string]any{"unlike": "", "each": []any{map[string]any{"elements": 10, "greatest": 1e-6}}}
	wrongOutputs = map[string]any{"unlike": "", "each": []any{map[string]any{"elements": 10, "wrong": 3,
		"greatest": 0.5, "at": []int{7}, "got": "1.5", "expected": "1.0"}}}
)

// prepare answers an order for which nothing is to be timed.
func prepare(m measureMessage) {
	say(map[string]any{"id": m.ID, "event": "built", "seconds": 0.1})
	switch order, _, _ := strings.Cut(m.Function, " "); order {
	case "crash-prepare":
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		time.Sleep(time.Hour)
	case "wrong-result":
		say(map[string]any{"id": m.ID, "event": "result", "samples_ms": []float64{},
			"outputs": wrongOutputs})
	case "setup":
		say(map[string]any{"id": m.ID, "event": "error", "phase": "setup", "kind": "error",
			"detail": "no code generator"})
	default:
		say(map[string]any{"id": m.ID, "event": "result", "samples_ms": []float64{}, "outputs": rightOutputs})
	}
}

// serve follows the order that stands in the place of a function: "ok 1.5", "crash-run", ...
func serve(m measureMessage, served int) {
	order, rest, _ := strings.Cut(m.Function, " ")
	built := func() { say(map[string]any{"id": m.ID, "event": "built", "seconds": 0.1}) }
	crash := func() {
		// A death by signal; one that the Go runtime has no report of its own for.
		fmt.Fprintln(os.Stderr, "going down")
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		time.Sleep(time.Hour)
	}
	switch order {
	case "ok", "build-crash", "build-hang", "build-error", "build-slow", "load-error":
		built()
		var ms float64
		fmt.Sscan(rest, &ms)
		samples := []float64{ms, ms, ms}
		if m.Again {
			samples = slices.Repeat([]float64{ms}, m.Samples)
		}
		say(map[string]any{"id": m.ID, "event": "result", "samples_ms": samples, "outputs": rightOutputs})
	case "leaks", "puts-off", "crash-soaked", "garbled":
		built()
		say(map[string]any{"id": m.ID, "event": "result", "samples_ms": []float64{20, 21}, "outputs": rightOutputs,
			"grown_bytes": leakBytes})
	case "crash-again":
		built()
		if m.Again {
			crash()
		}
		say(map[string]any{"id": m.ID, "event": "result", "samples_ms": []float64{3, 3, 3}})
	case "greedy": // takes ever more memory and does not come back
		built()
		for {
			fat = append(fat, make([]byte, 16<<20))
			for i := 0; i < len(fat[len(fat)-1]); i += 4096 {
				fat[len(fat)-1][i] = 1
			}
			time.Sleep(time.Millisecond)
			if len(fat) > 200 {
				time.Sleep(time.Hour)
			}
		}
	case "slow-ok":
		built()
		time.Sleep(150 * time.Millisecond)
		say(map[string]any{"id": m.ID, "event": "result", "samples_ms": []float64{1}})
	case "crash-build":
		crash()
	case "crash-run":
		built()
		crash()
	case "crash-unless-fresh": // an earlier request has broken the worker
		built()
		if served > 0 {
			crash()
		}
		say(map[string]any{"id": m.ID, "event": "result", "samples_ms": []float64{2}})
	case "killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "exit":
		fmt.Fprintln(os.Stderr, "last words")
		os.Exit(7)
	case "hang-build":
		time.Sleep(time.Hour)
	case "hang-run":
		built()
		time.Sleep(time.Hour)
	case "hang-with-child": // the child holds the pipes and must go, too
		child := exec.Command("sleep", "3600")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		_ = child.Start()
		logLine(fmt.Sprintf("child %d", child.Process.Pid))
		time.Sleep(time.Hour)
	case "exit-with-child":
		child := exec.Command("sleep", "3600")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		_ = child.Start()
		logLine(fmt.Sprintf("child %d", child.Process.Pid))
		os.Exit(7)
	case "garbage":
		fmt.Println("onednn_verbose,info,oneDNN v2.6.0")
		time.Sleep(time.Hour)
	case "half-a-line":
		fmt.Print(`{"id":`)
		os.Exit(0)
	case "not-json-number":
		built()
		fmt.Printf("{\"id\":%d,\"event\":\"result\",\"samples_ms\":[NaN]}\n", m.ID)
		time.Sleep(time.Hour)
	case "no-samples":
		built()
		say(map[string]any{"id": m.ID, "event": "result", "samples_ms": []float64{}})
		time.Sleep(time.Hour)
	case "wrong-result":
		built()
		say(map[string]any{"id": m.ID, "event": "result", "samples_ms": []float64{1},
			"outputs": wrongOutputs})
	case "error":
		say(map[string]any{"id": m.ID, "event": "error", "phase": "build", "kind": "error",
			"detail": "TVMError: no strategy"})
	case "setup":
		say(map[string]any{"id": m.ID, "event": "error", "phase": "setup", "kind": "error",
			"detail": "no code generator"})
	case "nan":
		built()
		say(map[string]any{"id": m.ID, "event": "error", "phase": "check", "kind": "not-a-number",
			"detail": "output 0"})
	case "stale": // an answer to an earlier request comes first
		say(map[string]any{"id": m.ID - 1, "event": "result", "samples_ms": []float64{99}})
		built()
		say(map[string]any{"id": m.ID, "event": "result", "samples_ms": []float64{4}})
	case "long":
		built()
		fmt.Fprint(os.Stderr, strings.Repeat("x", 200_000))
		say(map[string]any{"id": m.ID, "event": "error", "phase": "run", "kind": "error",
			"detail": strings.Repeat("y", 300_000) + "end"})
	case "fat": // holds on to memory
		fat = append(fat, make([]byte, 64<<20))
		for i := 0; i < len(fat[len(fat)-1]); i += 4096 { // a byte of each page makes it resident
			fat[len(fat)-1][i] = 1
		}
		built()
		say(map[string]any{"id": m.ID, "event": "result", "samples_ms": []float64{1}})
	default:
		fmt.Fprintln(os.Stderr, "unknown order", order)
		os.Exit(3)
	}
}

var fat [][]byte
