// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/cmd/internal/runmodel"
	"github.com/collage-tvm/collage/internal/npz"
)

// echo gives its input x again, and how many elements it has; while gate is not nil each request waits for it.
type echo struct {
	began, gate chan struct{}
	err         error
}

func (e echo) Infer(ctx context.Context, inputs []npz.Array) ([]npz.Array, error) {
	if e.gate != nil {
		e.began <- struct{}{}
		select {
		case <-e.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if e.err != nil {
		return nil, e.err
	}
	x := inputs[0]
	x.Name = "output_0"
	count := binary.LittleEndian.AppendUint64(nil, uint64(x.Elements()))
	return []npz.Array{x, {Name: "output_1", DType: "int64", Shape: []int64{1}, Data: count}}, nil
}

func options(executors ...Executor) Options {
	return Options{Name: "net", Version: "1.2.3", Executors: executors, Queue: 1, MostBytes: 1 << 16,
		Inputs: []runmodel.TensorInfo{{Name: "x", Shape: []int64{2, 2}, DType: "float32"}},
		Outputs: []runmodel.TensorInfo{{Name: "output_0", Shape: []int64{2, 2}, DType: "float32"},
			{Name: "output_1", Shape: []int64{1}, DType: "int64"}}}
}

// ask sends one request and gives the code and the body.
func ask(t *testing.T, server http.Handler, method, path, body string, header ...string) (int, string, http.Header) {
	t.Helper()
	request := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	server.ServeHTTP(w, request)
	return w.Code, w.Body.String(), w.Header()
}

const (
	inferPath = "/v2/models/net/infer"
	good      = `{"id": "7", "inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [[1, 2.5], [-3, 4e-3]]}]}`
)

func TestHealthAndMetadata(t *testing.T) {
	s := New(options(echo{}))
	for path, want := range map[string]string{
		"/v2":                  `{"extensions":["binary_tensor_data"],"name":"collage","version":"1.2.3"}`,
		"/v2/health/live":      `{"live":true}`,
		"/v2/health/ready":     `{"ready":true}`,
		"/v2/models/net/ready": `{"ready":true}`,
		"/v2/models/net": `{"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32"}],"name":"net","outputs":[` +
			`{"name":"output_0","shape":[2,2],"datatype":"FP32"},{"name":"output_1","shape":[1],"datatype":"INT64"}],` +
			`"platform":"collage","versions":["1"]}`,
	} {
		code, body, _ := ask(t, s, "GET", path, "")
		assert.Equal(t, 200, code, path)
		assert.JSONEq(t, want, body, path)
	}
	s.Close()
	code, _, _ := ask(t, s, "GET", "/v2/health/ready", "")
	assert.Equal(t, 503, code)
	code, body, _ := ask(t, s, "POST", inferPath, good)
	assert.Equal(t, 503, code)
	assert.Contains(t, body, "is being shut down")
	code, _, _ = ask(t, s, "GET", "/v2/health/live", "")
	assert.Equal(t, 200, code)
}

func TestInferenceByJSON(t *testing.T) {
	s := New(options(echo{}))
	for _, path := range []string{inferPath, "/v2/models/net/versions/1/infer"} {
		code, body, header := ask(t, s, "POST", path, good)
		assert.Equal(t, 200, code)
		assert.Equal(t, "application/json", header.Get("Content-Type"))
		assert.JSONEq(t, `{"model_name": "net", "model_version": "1", "id": "7", "outputs": [
			{"name": "output_0", "shape": [2, 2], "datatype": "FP32", "data": [1, 2.5, -3, 0.004]},
			{"name": "output_1", "shape": [1], "datatype": "INT64", "data": [4]}]}`, body)
	}
	code, body, _ := ask(t, s, "POST", inferPath, strings.Replace(good, `"inputs"`, `"outputs": [{"name": "output_1"}], "inputs"`, 1))
	assert.Equal(t, 200, code)
	assert.NotContains(t, body, "output_0")
	_, text, _ := ask(t, s, "GET", "/metrics", "")
	assert.Contains(t, text, `collage_requests_total{code="200",model="net"} 3`)
	assert.Contains(t, text, "collage_compute_seconds_count")
}

func TestInferenceByBytes(t *testing.T) {
	s := New(options(echo{}))
	var data []byte
	for _, number := range []float32{1, float32(math.NaN()), float32(math.Inf(-1)), 0.25} {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(number))
	}
	head := `{"parameters": {"binary_data": true}, "inputs": [
		{"name": "x", "shape": [2, 2], "datatype": "FP32", "parameters": {"binary_data_size": 16}}]}`
	code, body, header := ask(t, s, "POST", inferPath, head+string(data), headerLength, strconv.Itoa(len(head)))
	require.Equal(t, 200, code, body)
	at, err := strconv.Atoi(header.Get(headerLength))
	require.NoError(t, err)
	var said response
	require.NoError(t, json.Unmarshal([]byte(body[:at]), &said))
	assert.EqualValues(t, 16, *said.Outputs[0].Parameters.BinaryDataSize)
	assert.Equal(t, string(data), body[at:at+16])
	assert.Equal(t, uint64(4), binary.LittleEndian.Uint64([]byte(body[at+16:])))
	// JSON has no numbers for them.
	head = strings.Replace(head, `{"binary_data": true}`, `{}`, 1)
	code, body, _ = ask(t, s, "POST", inferPath, head+string(data), headerLength, strconv.Itoa(len(head)))
	assert.Equal(t, 500, code)
	assert.Contains(t, body, "NaN or infinity")
}

func TestRequestsThatAreWrong(t *testing.T) {
	s := New(options(echo{}))
	with := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	for body, want := range map[string]string{
		"":                        "is no JSON of the protocol's",
		"[]":                      "is no JSON of the protocol's",
		good[:len(good)-3]:        "is no JSON of the protocol's",
		`{}`:                      `the input \"x\" is missing`,
		with(`"x"`, `"y"`):        `the model has no input \"y\"`,
		with(`FP32`, `FP31`):      `has the datatype \"FP31\"`,
		with(`FP32`, `FP64`):      `is float64, the model takes float32`,
		with(`FP32`, `FP16`):      `JSON has no FP16`,
		with(`[2, 2]`, `[4]`):     `has the shape [4], the model takes [2, 2]`,
		with(`[2, 2]`, `[2, -2]`): `has the shape [2 -2]`,
		with(`[2, 2]`, `[2, 9223372036854775807]`):                       `has the shape [2 9223372036854775807]`,
		with(`[2, 2]`, `[1000000000000000]`):                             `its shape has 1000000000000000 elements, its data 4`,
		with(`, 4e-3`, ``):                                               `its shape has 4 elements, its data 3`,
		with(`, 4e-3`, `, 4, 5`):                                         `its shape has 4 elements, its data more`,
		with(`4e-3`, `"4"`):                                              `is no FP32`,
		with(`4e-3`, `1e40`):                                             `\"1e40\" is no FP32`,
		with(`4e-3`, `null`):                                             `\"null\" is no FP32`,
		with(`[[1, 2.5], [-3, 4e-3]]`, `7`):                              `its data are no array`,
		with(`, "data": [[1, 2.5], [-3, 4e-3]]`, ``):                     `it has no data`,
		with(`"data"`, `"parameters": {"binary_data_size": 16}, "data"`): `has data twice`,
		with(`"inputs"`, `"outputs": [{"name": "z"}], "inputs"`):         `the model has no output \"z\"`,
	} {
		code, said, _ := ask(t, s, "POST", inferPath, body)
		assert.Equal(t, 400, code, body)
		assert.Contains(t, said, want, body)
	}
	for _, c := range []struct {
		body, length string
		want         string
	}{
		{good, "x", headerLength + " is "},
		{good, "-1", headerLength + " is "},
		{good, "100000", headerLength + " is "},
		{good + "more", strconv.Itoa(len(good)), "4 bytes of the request belong to no input"},
	} {
		code, said, _ := ask(t, s, "POST", inferPath, c.body, headerLength, c.length)
		assert.Equal(t, 400, code)
		assert.Contains(t, said, c.want)
	}
	head := `{"inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "parameters": {"binary_data_size": 16}}]}`
	_, said, _ := ask(t, s, "POST", inferPath, head+"short", headerLength, strconv.Itoa(len(head)))
	assert.Contains(t, said, "has 16 bytes, of which 5 came")
	code, said, _ := ask(t, s, "POST", inferPath, strings.Repeat(" ", 1<<17))
	assert.Equal(t, 413, code)
	assert.Contains(t, said, "a request may have 65536 bytes")
	code, said, _ = ask(t, s, "POST", inferPath, good, "Content-Encoding", "gzip")
	assert.Equal(t, 415, code)
	assert.Contains(t, said, `is compressed (\"gzip\")`)
	for path, want := range map[string]int{"/v2/models/other/infer": 404, "/v3": 404, "/v2/models/net/versions/2/infer": 404} {
		code, _, _ := ask(t, s, "POST", path, good)
		assert.Equal(t, want, code, path)
	}
}

func TestAModelThatFails(t *testing.T) {
	s := New(options(echo{err: errors.New("the model failed: out of memory")}))
	for range 3 { // the executor is free again
		code, body, _ := ask(t, s, "POST", inferPath, good)
		assert.Equal(t, 500, code)
		assert.Contains(t, body, "out of memory")
	}
}

// panics is an executor with a defect.
type panics struct{}

func (panics) Infer(context.Context, []npz.Array) ([]npz.Array, error) { panic("a defect") }

// net/http ends the request alone: the next one must find the executor.
func TestADefectCostsNoExecutor(t *testing.T) {
	s := New(options(panics{}))
	for range 3 {
		assert.Panics(t, func() { ask(t, s, "POST", inferPath, good) })
		assert.Len(t, s.free, 1)
		assert.Zero(t, s.waiting.Load())
	}
}

// One is computed, one waits, the third is refused; a client that goes while it waits leaves its place.
func TestTheQueue(t *testing.T) {
	gate, began := make(chan struct{}), make(chan struct{}, 8)
	s := New(options(echo{began: began, gate: gate}))
	codes := make(chan int, 8)
	send := func(ctx context.Context) {
		request := httptest.NewRequest("POST", inferPath, strings.NewReader(good)).WithContext(ctx)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, request)
		codes <- w.Code
	}
	go send(context.Background())
	<-began
	leaving, leave := context.WithCancel(context.Background())
	go send(leaving)
	for s.waiting.Load() < 2 {
		time.Sleep(time.Millisecond)
	}
	code, body, header := ask(t, s, "POST", inferPath, good)
	assert.Equal(t, 503, code)
	assert.Contains(t, body, "too many requests are waiting")
	assert.Equal(t, "1", header.Get("Retry-After"))
	leave()
	assert.Equal(t, statusGone, <-codes)
	go send(context.Background())
	for s.waiting.Load() < 2 {
		time.Sleep(time.Millisecond)
	}
	close(gate)
	assert.Equal(t, 200, <-codes)
	assert.Equal(t, 200, <-codes)
	assert.Zero(t, s.waiting.Load())
}

// Many clients at once over real connections, more than there are executors: each gets its own numbers.
func TestManyClients(t *testing.T) {
	o := options(echo{}, echo{})
	o.Queue = 100
	web := httptest.NewServer(New(o))
	defer web.Close()
	var clients sync.WaitGroup
	for client := range 16 {
		clients.Go(func() {
			for k := range 20 {
				number := strconv.Itoa(client*1000 + k)
				body := strings.Replace(good, "2.5", number, 1)
				answer, err := http.Post(web.URL+inferPath, "application/json", strings.NewReader(body))
				if !assert.NoError(t, err) {
					return
				}
				said, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				assert.NoError(t, err)
				assert.Contains(t, string(said), "[1,"+number+",-3,0.004]")
			}
		})
	}
	clients.Wait()
}

func TestEveryTypeGoesBothWays(t *testing.T) {
	for dtype, numbersOf := range map[string]string{
		"bool": "[true,false]", "uint8": "[0,255]", "uint16": "[1,65535]", "uint32": "[1,4294967295]",
		"uint64": "[1,18446744073709551615]", "int8": "[-128,127]", "int16": "[-32768,1]", "int32": "[-2147483648,1]",
		"int64": "[-9223372036854775808,1]", "float32": "[0.1,-3e+38]", "float64": "[0.1,-1e+300]",
	} {
		data, err := numbers(jsontext.Value(numbersOf), dtype, 2)
		require.NoError(t, err, dtype)
		back, err := text(&npz.Array{DType: dtype, Shape: []int64{2}, Data: data})
		require.NoError(t, err, dtype)
		assert.Equal(t, numbersOf, string(back), dtype)
	}
	_, err := numbers(jsontext.Value("[256]"), "uint8", 1)
	require.Error(t, err)
	_, err = numbers(jsontext.Value("[1.5]"), "int32", 1)
	require.Error(t, err)
	_, err = text(&npz.Array{DType: "float16", Shape: []int64{1}, Data: []byte{0, 0}})
	require.Error(t, err)
}

func FuzzInfer(f *testing.F) {
	f.Add([]byte(good), "")
	f.Add([]byte(good), "12")
	f.Add([]byte(`{"inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "parameters": {"binary_data_size": 16}}]}0123456789abcdef`), "100")
	f.Fuzz(func(t *testing.T, body []byte, length string) {
		s := New(options(echo{}))
		request := httptest.NewRequest("POST", inferPath, bytes.NewReader(body))
		if length != "" {
			request.Header.Set(headerLength, length)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, request)
		if w.Code != 200 && w.Code != 400 && w.Code != 413 && w.Code != 500 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	})
}
