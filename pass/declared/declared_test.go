// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

const npu = `{"version": 1,
 "devices": {"npu": {"memory_bytes": 1000, "copies": [{"bytes": 10, "to_ms": 1, "from_ms": 2}]}},
 "backends": {"npu_kernels": {"device": "npu", "gflops": 2, "gigabytes_per_second": 0.5, "launch_ms": 3,
  "operators": {"nn.dense": {}, "nn.relu": {}, "add": {"launch_ms": 0, "gigabytes_per_second": 4}}}}}`

func TestWhatIsNoFileOfCostsIsNamed(t *testing.T) {
	t.Parallel()
	_, err := parse("npu.json", []byte(npu))
	require.NoError(t, err)
	for change, want := range map[[2]string]string{
		{`"version": 1`, `"version": 2`}:                                            "version: is 2; this Collage reads 1",
		{`"gflops": 2`, `"gflops": 0`}:                                              "backends.npu_kernels.gflops: is 0; name a number above 0",
		{`"gflops": 2,`, ``}:                                                        "backends.npu_kernels.gflops: is 0; name a number above 0",
		{`"gigabytes_per_second": 0.5`, `"gigabytes": 1`}:                           `unknown field "gigabytes"`,
		{`"gigabytes_per_second": 0.5,`, ``}:                                        "backends.npu_kernels.gigabytes_per_second: is 0; name",
		{`"launch_ms": 3`, `"launch_ms": -1`}:                                       "backends.npu_kernels.launch_ms: is -1; name a number from 0 on",
		{`"launch_ms": 0`, `"launch_ms": -2`}:                                       "backends.npu_kernels.operators.add.launch_ms: is -2; name",
		{`"memory_bytes": 1000`, `"memory_bytes": -1`}:                              "devices.npu.memory_bytes: is -1",
		{`[{"bytes": 10, "to_ms": 1, "from_ms": 2}]`, `[]`}:                         "devices.npu.copies: there are none",
		{`"bytes": 10`, `"bytes": 0`}:                                               "devices.npu.copies[0].bytes: is 0; sizes ascend, from 1 on",
		{`"from_ms": 2}`, `"from_ms": 2}, {"bytes": 10, "to_ms": 1, "from_ms": 2}`}: "devices.npu.copies[1].bytes: is 10",
		{`"to_ms": 1`, `"to_ms": -1`}:                                               "devices.npu.copies[0].to_ms: is -1",
		{`"from_ms": 2`, `"from_ms": -1`}:                                           "devices.npu.copies[0].from_ms: is -1",
		{`"device": "npu"`, `"device": "gpu"`}:                                      `backends.npu_kernels.device: "gpu" is none of the file's devices`,
		{`{"npu": {`, `{"cpu": {`}:                                                  `devices: "cpu" is no device beside the processor`,
		{`{}, "nn.relu"`, `[], "nn.relu"`}:                                          "cannot unmarshal",
		{`"version": 1`, `"version": 1,`}:                                           "invalid character",
	} {
		text := strings.Replace(npu, change[0], change[1], 1)
		require.NotEqual(t, npu, text, change)
		_, err := parse("npu.json", []byte(text))
		require.ErrorContains(t, err, "npu.json is no file of costs: ", text)
		require.ErrorContains(t, err, want)
	}
	_, err = parse("npu.json", []byte(npu+"{}"))
	require.ErrorContains(t, err, "something follows the JSON value")
	_, err = parse("npu.json", []byte(`{"version": 1}`))
	require.ErrorContains(t, err, "backends: there are none")
	_, err = Read(filepath.Join(t.TempDir(), "absent.json"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// read is the file above with a change.
func read(t *testing.T, old, new string) *File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "npu.json")
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(npu, old, new, 1)), 0o600))
	f, err := Read(path)
	require.NoError(t, err)
	return f
}

// kindOf are the patterns of TVM for the operators of these tests.
func kindOf(op string) candidate.OpPattern {
	switch op {
	case "nn.relu":
		return candidate.ElemWise
	case "add":
		return candidate.Broadcast
	}
	return candidate.OutEWiseFusable
}

func TestKernelsTakeWhatTheirOperatorsTake(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	square := relay.Tensor("float32", 10, 10)
	x, w := m.Var([]int64{10, 10}, "float32"), m.Var([]int64{10, 10}, "float32")
	dense := m.Call("nn.dense", square, nil, x, w)
	relu := m.Call("nn.relu", square, nil, dense)
	sum := m.Call("add", square, nil, relu, x)
	twice := m.Call("nn.relu", square, nil, sum)
	last := m.Call("add", square, nil, twice, sum) // sum is read by two
	again := m.Call("nn.dense", square, nil, last, w)
	g := m.Finish(again)
	said := read(t, "", "").Backends["npu_kernels"]
	take := func(b Backend, nodes ...relay.NodeID) float64 {
		ms, known, err := b.costFunction(kindOf)(g, byoc.Proposal{Nodes: nodes})
		require.NoError(t, err)
		require.True(t, known)
		return ms
	}
	// A value has 400 bytes, and dense 2000 operations: 1e-3 ms by 2e9 a second, 2.4e-3 ms by 0.5e9 bytes a second.
	const value = 400.0
	slow := func(values float64) float64 { return 3 + values*value/0.5e6 }
	fast := func(values float64) float64 { return values * value / 4e6 }
	require.InDelta(t, slow(3), take(said, dense), 1e-12)
	require.InDelta(t, slow(2), take(said, relu), 1e-12)
	require.InDelta(t, fast(3), take(said, sum), 1e-12, "an operator's own speed")
	require.InDelta(t, slow(3), take(said, dense, relu), 1e-12, "one kernel: what lies between is not moved")
	require.InDelta(t, slow(3), take(said, dense, relu, sum), 1e-12, "at the speed of the first; x is read once")
	require.InDelta(t, slow(3)+slow(2), take(said, dense, relu, sum, twice), 1e-12, "what two read ends a kernel")
	require.InDelta(t, slow(3)+slow(2), take(said, dense, relu, sum, twice, last), 1e-12)
	require.InDelta(t, fast(3)+slow(3), take(said, last, again), 1e-12, "an operator with sums begins a kernel")
	apart := said
	apart.NoFusion = true
	require.InDelta(t, slow(3)+slow(2)+fast(3), take(apart, dense, relu, sum), 1e-12)
	quick := said
	quick.GBps = 1e6
	require.InDelta(t, 3+1e-3, take(quick, dense), 1e-9, "as long as computing takes")
}

func TestAFileHoldsUntilItIsWithdrawn(t *testing.T) {
	withdraw, err := read(t, "", "").Declare()
	require.NoError(t, err)
	b, err := byoc.Lookup("npu_kernels")
	require.NoError(t, err)
	require.Equal(t, "npu", byoc.DeviceOf(b))
	require.Equal(t, int64(1000), byoc.MemoryOf(b))
	require.True(t, b.Probe().Usable)
	require.Contains(t, byoc.DeclarationOf(b).Source, "npu.json (SHA-256 ")
	require.Equal(t, byoc.CopyCosts{{Bytes: 10, To: 1, From: 2}}, byoc.DeclarationOf(b).Copies)
	require.NotNil(t, byoc.CostFunctionOf(b))
	require.Nil(t, byoc.BorderCostOf(b), "before a search begins nothing is known of copies")
	b.(byoc.Remote).Know(&byoc.DeclarationOf(b).Copies)
	in, out := byoc.BorderCostOf(b)(relay.Tensor("float32", 8))
	require.Equal(t, [2]float64{1, 2}, [2]float64{in, out})

	_, err = read(t, "", "").Declare()
	require.ErrorContains(t, err, `the costs of the backend "npu_kernels" are declared already: npu.json`)
	require.NotNil(t, byoc.DeclarationOf(b), "the first one holds on")

	withdraw()
	require.Nil(t, byoc.DeclarationOf(b))
	_, err = byoc.Lookup("npu_kernels")
	require.Error(t, err)
	withdraw() // nothing more
	again, err := read(t, "", "").Declare()
	require.NoError(t, err)
	again()
}

func TestAFileSpeaksOfBackendsThatAreThere(t *testing.T) {
	withdraw, err := read(t, `"npu_kernels": {"device": "npu", `, `"tvm": {`).Declare()
	require.ErrorContains(t, err, "devices.npu: no backend of the file runs there")
	require.Nil(t, withdraw)
	tvm, err := byoc.Lookup("tvm")
	require.NoError(t, err)
	require.Nil(t, byoc.DeclarationOf(tvm), "nothing of a file that is refused holds")

	_, err = read(t, `"npu_kernels": {`, `"tvm": {`).Declare()
	require.ErrorContains(t, err, "npu.json is no file of costs: backends.tvm.device: the backend that is registered runs on cpu")
	_, err = read(t, `"nn.dense": {}, "nn.relu": {}, "add": {"launch_ms": 0, "gigabytes_per_second": 4}`, "").Declare()
	require.ErrorContains(t, err, "backends.npu_kernels.operators: there are none, and no backend of this name is registered")
	_, err = read(t, "npu_kernels", "NPU").Declare()
	require.ErrorContains(t, err, "is not a backend name")

	withdraw, err = read(t, `"npu_kernels": {"device": "npu"`, `"dnnl": {"gflops": 1, "gigabytes_per_second": 1},
		"npu_kernels": {"device": "npu"`).Declare()
	require.NoError(t, err)
	dnnl, err := byoc.Lookup("dnnl")
	require.NoError(t, err)
	require.NotNil(t, byoc.DeclarationOf(dnnl))
	withdraw()
	require.Nil(t, byoc.DeclarationOf(dnnl))
	_, err = byoc.Lookup("dnnl")
	require.NoError(t, err, "what others registered stays")
}

func TestOnlyWhatTheFileNamesGoesThere(t *testing.T) {
	withdraw, err := read(t, "", "").Declare()
	require.NoError(t, err)
	defer withdraw()
	b, err := byoc.Lookup("npu_kernels")
	require.NoError(t, err)
	m := relay.NewGraph("main")
	x := m.Var([]int64{4, 4}, "float32")
	n := m.Var([]int64{4, 4}, "int32")
	relu := m.Call("nn.relu", relay.Tensor("float32", 4, 4), nil, x)
	tanh := m.Call("tanh", relay.Tensor("float32", 4, 4), nil, relu)
	whole := m.Call("add", relay.Tensor("int32", 4, 4), nil, n, n)
	pair := m.Tuple(tanh, relu, whole)
	g := m.Finish(pair)
	supports := byoc.RulesOf(b).Supports
	require.NoError(t, supports(g, relu))
	require.ErrorContains(t, supports(g, tanh), "its file does not name tanh")
	require.ErrorContains(t, supports(g, whole), "it computes with float32 alone, this is Tensor[(4, 4), int32]")
}
