// SPDX-License-Identifier: Apache-2.0

// Package serve answers requests for a model over HTTP, by the KServe v2 inference protocol (which Triton speaks, too:
// https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol) with its extension for binary data.
//
// What comes in: requests with tensors as JSON or as bytes. What goes out: outputs in the same way, health, metadata, and
// metrics for Prometheus. A request waits until one of the model's executors is free; one too many is refused at once.
package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/collage-tvm/collage/cmd/internal/runmodel"
	"github.com/collage-tvm/collage/internal/npz"
)

// Executor computes a model for one request at a time.
type Executor interface {
	// Infer gives the outputs for inputs that CheckInputs has seen; they are the caller's.
	Infer(ctx context.Context, inputs []npz.Array) ([]npz.Array, error)
}

// Options are those of a Server.
type Options struct {
	// Name is the model's, Version that of the program.
	Name, Version string
	// Inputs and Outputs are what the model takes and gives.
	Inputs, Outputs []runmodel.TensorInfo
	// Executors compute; as many requests are computed at the same time.
	Executors []Executor
	// Queue is how many requests may wait beside those, MostBytes how large one may be.
	Queue     int
	MostBytes int64
	// Batching gathers requests; the zero Batching computes each by itself.
	Batching Batching
}

// Server answers requests for one model.
type Server struct {
	options Options
	free    chan Executor
	// batcher has the executors where requests are gathered; nil elsewhere.
	batcher *batcher
	// waiting counts requests that are computed or wait.
	waiting atomic.Int64
	closing atomic.Bool
	metrics *metrics
	mux     *http.ServeMux
}

// New makes a server that is ready.
func New(options Options) *Server {
	s := &Server{options: options, free: make(chan Executor, len(options.Executors)), mux: http.NewServeMux(),
		metrics: newMetrics(options.Name, options.Batching.Rows)}
	if options.Batching.Rows != 0 {
		s.batcher = newBatcher(options.Batching, options.Executors, s.metrics, s.timed)
	} else {
		for _, executor := range options.Executors {
			s.free <- executor
		}
	}
	model := "/v2/models/" + options.Name
	for pattern, handler := range map[string]http.HandlerFunc{
		"GET /v2":                             s.about,
		"GET /v2/health/live":                 s.live,
		"GET /v2/health/ready":                s.ready,
		"GET /v2/models/{model}":              s.model,
		"GET /v2/models/{model}/ready":        s.modelReady,
		"POST /v2/models/{model}/infer":       s.infer,
		"GET " + model + "/versions/1":        s.model,
		"GET " + model + "/versions/1/ready":  s.modelReady,
		"POST " + model + "/versions/1/infer": s.infer,
	} {
		s.mux.HandleFunc(pattern, handler)
	}
	s.mux.Handle("GET /metrics", s.metrics.handler())
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, http.StatusNotFound, fmt.Errorf("there is nothing at %s %s (the protocol begins at /v2)", r.Method, r.URL.Path))
	})
	return s
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Close has the server say that it is not ready any more; what it was asked before is answered.
func (s *Server) Close() { s.closing.Store(true) }

// End ends what computes, once nothing is asked any more.
func (s *Server) End() {
	if s.batcher != nil {
		s.batcher.close()
	}
}

func (s *Server) write(w http.ResponseWriter, code int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		code, text = http.StatusInternalServerError, []byte(`{"error": "the answer cannot be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(text) // whoever has gone does not read
}

func (s *Server) fail(w http.ResponseWriter, code int, err error) {
	s.write(w, code, map[string]string{"error": err.Error()})
}

func (s *Server) about(w http.ResponseWriter, _ *http.Request) {
	s.write(w, http.StatusOK, map[string]any{"name": "collage", "version": s.options.Version,
		"extensions": []string{"binary_tensor_data"}})
}

func (s *Server) live(w http.ResponseWriter, _ *http.Request) {
	s.write(w, http.StatusOK, map[string]bool{"live": true})
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	code := http.StatusOK
	if s.closing.Load() {
		code = http.StatusServiceUnavailable
	}
	s.write(w, code, map[string]bool{"ready": code == http.StatusOK})
}

// known says whether a request is for the model that there is; it answers those that are not.
func (s *Server) known(w http.ResponseWriter, r *http.Request) bool {
	name := r.PathValue("model")
	if name == "" || name == s.options.Name {
		return true
	}
	s.fail(w, http.StatusNotFound, fmt.Errorf("there is no model %q, only %q", name, s.options.Name))
	return false
}

func (s *Server) modelReady(w http.ResponseWriter, r *http.Request) {
	if s.known(w, r) {
		s.ready(w, r)
	}
}

func (s *Server) model(w http.ResponseWriter, r *http.Request) {
	if !s.known(w, r) {
		return
	}
	said := func(infos []runmodel.TensorInfo) []tensor {
		tensors := []tensor{}
		for _, info := range infos {
			tensors = append(tensors, tensor{Name: info.Name, Shape: append([]int64{}, info.Shape...),
				Datatype: datatypes[info.DType]})
			if s.batcher != nil {
				tensors[len(tensors)-1].Shape[0] = -1 // as many as a request likes, up to the model's
			}
		}
		return tensors
	}
	s.write(w, http.StatusOK, map[string]any{"name": s.options.Name, "versions": []string{"1"}, "platform": "collage",
		"inputs": said(s.options.Inputs), "outputs": said(s.options.Outputs)})
}

// request and response are the protocol's.
type request struct {
	ID         string      `json:"id"`
	Parameters *parameters `json:"parameters"`
	Inputs     []tensor    `json:"inputs"`
	Outputs    []tensor    `json:"outputs"`
}

type response struct {
	Model   string   `json:"model_name"`
	Version string   `json:"model_version"`
	ID      string   `json:"id,omitzero"`
	Outputs []tensor `json:"outputs"`
}

// headerLength says how many of a body's bytes are JSON, where binary data follow.
const headerLength = "Inference-Header-Content-Length"

// errBusy is for requests beyond the queue.
var errBusy = errors.New("too many requests are waiting")

func (s *Server) infer(w http.ResponseWriter, r *http.Request) {
	if !s.known(w, r) {
		return
	}
	began := time.Now()
	code, err := s.answer(w, r)
	if err != nil {
		if code == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
		s.fail(w, code, err)
	}
	s.metrics.done(code, time.Since(began))
}

// answer computes and writes an answer, or says by which code it is refused.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) (int, error) {
	if s.closing.Load() {
		return http.StatusServiceUnavailable, errors.New("the server is being shut down")
	}
	// Before the body is read: what is refused shall cost nothing.
	defer s.waiting.Add(-1)
	if s.waiting.Add(1) > int64(len(s.options.Executors)+s.options.Queue) {
		return http.StatusServiceUnavailable, errBusy
	}
	asked, inputs, code, err := s.read(w, r)
	if err != nil {
		return code, err
	}
	wanted, err := s.wanted(asked)
	if err != nil {
		return http.StatusBadRequest, err
	}
	outputs, err := s.compute(r.Context(), inputs)
	if err != nil {
		if r.Context().Err() != nil {
			return statusGone, errors.New("the client has gone")
		}
		return http.StatusInternalServerError, err
	}
	return s.reply(w, asked, wanted, outputs)
}

// compute has the next executor that is free compute, or the batcher.
func (s *Server) compute(ctx context.Context, inputs []npz.Array) ([]npz.Array, error) {
	if s.batcher != nil {
		return s.batcher.infer(ctx, inputs)
	}
	select {
	case executor := <-s.free:
		defer func() { s.free <- executor }() // whatever happens
		return s.timedFor(ctx, executor, inputs)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *Server) timed(executor Executor, inputs []npz.Array) ([]npz.Array, error) {
	return s.timedFor(context.Background(), executor, inputs)
}

func (s *Server) timedFor(ctx context.Context, executor Executor, inputs []npz.Array) ([]npz.Array, error) {
	began := time.Now()
	s.metrics.computing.Inc()
	defer func() { s.metrics.computed(time.Since(began)) }()
	return executor.Infer(ctx, inputs)
}

// statusGone is nginx's code for a client that has closed its connection; nobody reads it but the metrics.
const statusGone = 499

// read reads a request's JSON and arrays, and holds them against what the model takes.
func (s *Server) read(w http.ResponseWriter, r *http.Request) (asked *request, inputs []npz.Array, code int, err error) {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, nil, http.StatusUnsupportedMediaType, fmt.Errorf("the request is compressed (%.40q); send it as it is",
			encoding)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.options.MostBytes))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, nil, http.StatusRequestEntityTooLarge, fmt.Errorf("a request may have %d bytes", large.Limit)
	case err != nil:
		return nil, nil, statusGone, err
	}
	head, behind := body, []byte(nil)
	if given := r.Header.Get(headerLength); given != "" {
		length, err := strconv.Atoi(given)
		if err != nil || length < 0 || length > len(body) {
			return nil, nil, http.StatusBadRequest, fmt.Errorf("%s is %.40q, the body has %d bytes", headerLength, given,
				len(body))
		}
		head, behind = body[:length], body[length:]
	}
	asked = &request{}
	if err := json.Unmarshal(head, asked); err != nil {
		return nil, nil, http.StatusBadRequest, fmt.Errorf("the request is no JSON of the protocol's: %w", err)
	}
	for i := range asked.Inputs {
		var a npz.Array
		if a, behind, err = asked.Inputs[i].array(behind); err != nil {
			return nil, nil, http.StatusBadRequest, err
		}
		inputs = append(inputs, a)
	}
	if len(behind) > 0 {
		return nil, nil, http.StatusBadRequest, fmt.Errorf("%d bytes of the request belong to no input", len(behind))
	}
	if inputs, err = s.check(inputs); err != nil {
		return nil, nil, http.StatusBadRequest, err
	}
	return asked, inputs, 0, nil
}

// check holds inputs against what the model takes, and gives them in its order; where requests are gathered, they may
// have fewer rows.
func (s *Server) check(inputs []npz.Array) ([]npz.Array, error) {
	takes := s.options.Inputs
	if most := s.options.Batching.Rows; most != 0 && len(inputs) > 0 && len(inputs[0].Shape) > 0 {
		rows := inputs[0].Shape[0]
		switch {
		case most == AsMany && rows < 1:
			return nil, fmt.Errorf("the input %q has %d rows; a request has 1 or more", inputs[0].Name, rows)
		case most == AsMany && s.options.Batching.Most > 0 && rows > s.options.Batching.Most:
			return nil, fmt.Errorf("the input %q has %d rows; the model was compiled for 1 to %d", inputs[0].Name, rows,
				s.options.Batching.Most)
		case most != AsMany && (rows < 1 || rows > most):
			return nil, fmt.Errorf("the input %q has %d rows; a request may have 1 to %d", inputs[0].Name, rows, most)
		}
		takes = withRows(takes, rows)
	}
	if err := runmodel.CheckInputs(takes, inputs); err != nil {
		return nil, err
	}
	inOrder := make([]npz.Array, len(takes))
	for i := range takes {
		inOrder[i] = inputs[slices.IndexFunc(inputs, func(a npz.Array) bool { return a.Name == takes[i].Name })]
	}
	return inOrder, nil
}

// output is one that a request wants.
type output struct {
	index int
	bytes bool
}

// wanted are the outputs that a request names, or all.
func (s *Server) wanted(asked *request) ([]output, error) {
	every := asked.Parameters != nil && asked.Parameters.BinaryData != nil && *asked.Parameters.BinaryData
	var wanted []output
	if len(asked.Outputs) == 0 {
		for i := range s.options.Outputs {
			wanted = append(wanted, output{i, every})
		}
		return wanted, nil
	}
	for _, one := range asked.Outputs {
		index := -1
		for i, info := range s.options.Outputs {
			if info.Name == one.Name {
				index = i
			}
		}
		if index < 0 {
			return nil, fmt.Errorf("the model has no output %q", one.Name)
		}
		inBytes := every
		if one.Parameters != nil && one.Parameters.BinaryData != nil {
			inBytes = *one.Parameters.BinaryData
		}
		wanted = append(wanted, output{index, inBytes})
	}
	return wanted, nil
}

func (s *Server) reply(w http.ResponseWriter, asked *request, wanted []output, outputs []npz.Array) (int, error) {
	said := response{Model: s.options.Name, Version: "1", ID: asked.ID, Outputs: []tensor{}}
	var behind bytes.Buffer
	for _, one := range wanted {
		a := &outputs[one.index]
		t := tensor{Name: a.Name, Shape: append([]int64{}, a.Shape...), Datatype: datatypes[a.DType]}
		if one.bytes {
			size := int64(len(a.Data))
			t.Parameters = &parameters{BinaryDataSize: &size}
			behind.Write(a.Data)
		} else {
			var err error
			if t.Data, err = text(a); err != nil {
				return http.StatusInternalServerError, fmt.Errorf("the output %q: %w", a.Name, err)
			}
		}
		said.Outputs = append(said.Outputs, t)
	}
	head, err := json.Marshal(said)
	if err != nil {
		return http.StatusInternalServerError, err
	}
	kind := "application/json"
	if behind.Len() > 0 {
		kind = "application/octet-stream"
		w.Header().Set(headerLength, strconv.Itoa(len(head)))
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(head)+behind.Len()))
	if _, err := w.Write(head); err == nil {
		_, _ = w.Write(behind.Bytes()) // whoever has gone does not read
	}
	return http.StatusOK, nil
}
