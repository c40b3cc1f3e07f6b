// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/cmd/internal/runmodel"
	"github.com/collage-tvm/collage/cmd/internal/serve"
	"github.com/collage-tvm/collage/internal/npz"
)

// patience is how long requests that are being answered may take once the server is told to end.
const patience = 30 * time.Second

var serveCommand = Command{
	Name:      "serve",
	Arguments: "MODEL [--listen ADDRESS]",
	Short:     "answer requests for a model over HTTP (KServe v2, as Triton has it)",
	Long: `Loads an exported model, or the folder that collage package wrote, and answers requests for it by the KServe v2
inference protocol, with tensors as JSON or as bytes. /v2/health/live and /v2/health/ready are for whoever watches it,
/metrics is for Prometheus. Neither Python nor TVM's compiler is loaded.

Each of the --executors computes one request at a time, on as many threads as the model was compiled for (--threads);
their weights are in memory once where dnnl, native and TVM hold them. With --batch-delay a model that was compiled for a
batch answers several requests of fewer rows at once, and one whose first dimension is open (--dynamic) as many rows as
have come: it is tried first, on random rows, that no row's answer hangs on the others, and refused where it does.
Requests beyond --queue are refused with the code
503, larger ones than --most-bytes with 413. On Ctrl-C or SIGTERM what was asked before is answered, for 30 s at most, and
the exit code is 0.`,
	Examples: []string{"serve model.so", "serve model --listen 127.0.0.1:8000 --executors 4 --threads 1"},
	New: func(flags *pflag.FlagSet) Action {
		a := &serveAction{}
		flags.StringVar(&a.listen, "listen", "127.0.0.1:8000", "listen at `ADDRESS`; port 0 is one that is free")
		flags.StringVar(&a.name, "name", "", "the model's `NAME` in requests; without it, that of its file")
		flags.IntVar(&a.executors, "executors", 1, "compute `N` requests at the same time")
		flags.DurationVar(&a.batchDelay, "batch-delay", 0,
			"gather requests of fewer rows than the model was compiled for, or of a model with an open first "+
				"dimension, and wait for `TIME` (2ms) for others; 0 does not")
		flags.IntVar(&a.queue, "queue", 64, "let `N` requests wait beside those that are computed")
		flags.Int64Var(&a.mostBytes, "most-bytes", 256<<20, "a request may have `N` bytes")
		flags.IntVar(&a.run.threads, "threads", 0, "each executor uses `N` threads; 0 for what the model was compiled for")
		flags.StringVar(&a.run.runtime, "tvm-runtime", "",
			"TVM's runtime library, `FILE`; without it, $COLLAGE_TVM_RUNTIME or the tvm package's")
		flags.BoolVar(&a.json, "json", false, "say where it listens as JSON")
		return a
	},
}

type serveAction struct {
	listen, name     string
	executors, queue int
	mostBytes        int64
	batchDelay       time.Duration
	json             bool
	// run has what opens the model.
	run runAction
}

// modelName are names that stand in a path as they are.
var modelName = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

func (a *serveAction) Check(_ *Session, args []string) error {
	if err := expect(&serveCommand, args, "MODEL"); err != nil {
		return err
	}
	if err := checkModelOrPackage(args[0]); err != nil {
		return err
	}
	if a.name == "" {
		base := filepath.Base(filepath.Clean(args[0]))
		if absolute, err := filepath.Abs(args[0]); err == nil {
			base = filepath.Base(absolute)
		}
		a.name = strings.TrimSuffix(strings.TrimSuffix(base, ".tar"), ".so")
	}
	switch {
	case !modelName.MatchString(a.name):
		return fmt.Errorf("--name %s: a name has letters, digits and _.- only", quoteIfNeeded(a.name))
	case a.executors < 1 || a.executors > 1024:
		return fmt.Errorf("--executors %d: from 1 to 1024", a.executors)
	case a.queue < 0:
		return fmt.Errorf("--queue %d: cannot be negative", a.queue)
	case a.batchDelay < 0 || a.batchDelay > patience/2:
		return fmt.Errorf("--batch-delay %v: from 0 to %v", a.batchDelay, patience/2)
	case a.mostBytes < 1:
		return fmt.Errorf("--most-bytes %d: at least one", a.mostBytes)
	}
	if _, _, err := net.SplitHostPort(a.listen); err != nil {
		return fmt.Errorf("--listen %s: give it as HOST:PORT", quoteIfNeeded(a.listen))
	}
	return checkThreads(a.run.threads)
}

// serveReport is what --json prints.
type serveReport struct {
	Model   string                `json:"model"`
	Name    string                `json:"name"`
	Address string                `json:"address"`
	Inputs  []runmodel.TensorInfo `json:"inputs"`
	Outputs []runmodel.TensorInfo `json:"outputs"`
}

func (a *serveAction) Run(s *Session, args []string) error {
	models, err := a.load(s, args[0])
	if err != nil {
		return err
	}
	executors := make([]serve.Executor, len(models))
	for i, model := range models {
		executors[i] = executor{model}
	}
	batching, err := a.batching(s, models[0].Inputs, models[0].Outputs, executors[0])
	if err != nil {
		return err
	}
	server := serve.New(serve.Options{Name: a.name, Version: Version, Inputs: models[0].Inputs, Outputs: models[0].Outputs,
		Executors: executors, Queue: a.queue, MostBytes: a.mostBytes, Batching: batching})
	listener, err := (&net.ListenConfig{}).Listen(s.Context, "tcp", a.listen)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", a.listen, err)
	}
	web := &http.Server{Handler: server, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: log.New(s.Stderr, "collage: ", 0)}
	ended := make(chan struct{})
	s.setService(func() { close(ended) })
	report := serveReport{args[0], a.name, listener.Addr().String(), models[0].Inputs, models[0].Outputs}
	if a.json {
		err = s.printJSON(report)
	} else {
		_, err = fmt.Fprintf(s.Stdout, "%s listens at http://%s/v2/models/%s/infer\n", report.Model, report.Address, a.name)
	}
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ended:
	}
	server.Close()
	patient, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := web.Shutdown(patient); err != nil {
		return fmt.Errorf("requests were still being answered after %v: %w", patience, err)
	}
	server.End()
	return nil
}

// batching is what --batch-delay asks for; the error says why requests for this model cannot be gathered.
func (a *serveAction) batching(s *Session, inputs, outputs []runmodel.TensorInfo, one serve.Executor) (serve.Batching,
	error) {
	if a.batchDelay == 0 {
		return serve.Batching{}, nil
	}
	rows, err := serve.BatchOf(inputs, outputs)
	most := int64(0)
	if err == nil {
		most, err = serve.MostRows(inputs)
	}
	if err == nil {
		err = serve.CheckRows(s.Context, one, inputs, rows)
	}
	if err != nil {
		return serve.Batching{}, fmt.Errorf("--batch-delay: %w", err)
	}
	return serve.Batching{Rows: rows, Most: most, Delay: a.batchDelay}, nil
}

// load gives the model as often as there are executors.
func (a *serveAction) load(s *Session, path string) ([]*runmodel.Model, error) {
	if err := a.run.setThreads(); err != nil {
		return nil, err
	}
	files, err := a.run.open(s, path)
	if err != nil {
		return nil, err
	}
	if _, err := a.run.loadRuntime(s); err != nil {
		return nil, err
	}
	var models []*runmodel.Model
	for range a.executors {
		model, err := runmodel.Load(files)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		models = append(models, model)
	}
	// What an engine makes when it first runs shall be there before the first request.
	for _, model := range models {
		inputs, err := runmodel.RandomInputs(model.Inputs, 0)
		if err != nil {
			continue // of a type of which there are no random values
		}
		if _, err := (executor{model}).Infer(s.Context, inputs); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return models, nil
}

// executor is a model as package serve wants it.
type executor struct{ model *runmodel.Model }

func (e executor) Infer(ctx context.Context, inputs []npz.Array) ([]npz.Array, error) {
	if err := e.model.SetInputs(inputs); err != nil {
		return nil, err
	}
	if _, err := e.model.Time(ctx, 1, 0); err != nil {
		return nil, err
	}
	return e.model.GetOutputs()
}
