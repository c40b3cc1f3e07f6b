// SPDX-License-Identifier: Apache-2.0

package csource

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

func tensorType(shape ...int64) *relay.Type {
	return &relay.Type{Kind: relay.TypeTensor, DType: "float32", Shape: shape}
}

// program is exp(relu(x)) and x itself.
func program(t *testing.T) *region.Program {
	m := relay.NewGraph("r")
	x := m.Var([]int64{4, 8}, "float32")
	relu := m.Call("nn.relu", tensorType(4, 8), nil, x)
	exp := m.Call("exp", tensorType(4, 8), nil, relu)
	p, err := region.FromGraph(m.Finish(m.Tuple(exp, x, exp)), "r")
	require.NoError(t, err)
	return p
}

func TestSourceNamesEachTensorOnce(t *testing.T) {
	t.Parallel()
	p := program(t)
	relu, exp := p.Ops[0].Results[0], p.Ops[1].Results[0]
	statements := "relu(" + Name(p.Inputs[0]) + ", " + Name(relu) + "); exp(" + Name(relu) + ", " + Name(exp) + ");"
	text, err := Source(p, "mine", "\n#define N 32\n", statements, Constants{})
	require.NoError(t, err)
	for _, want := range []string{
		"#line 1 \"prelude of mine, at nn.relu\"\n\n#define N 32\n",
		"#line 1 \"statements of mine, at nn.relu\"\nrelu(",
		"if (count != 4)",
		"const float* v0 = (const float*)((char*)((DLTensor*)args[0].v_handle)->data + ",
		"float* " + Name(exp) + " = (float*)((char*)((DLTensor*)args[1].v_handle)->data + ",
		"float* " + Name(relu) + " = (float*)TVMBackendAllocWorkspace(1, 0, 128, 2, 32);",
		"  TVMBackendFreeWorkspace(1, 0, " + Name(relu) + ");\n",
		// A result that is an input, and one that is given twice.
		"memcpy(((char*)((DLTensor*)args[2].v_handle)->data + ((DLTensor*)args[2].v_handle)->byte_offset), v0, 128);",
		"memcpy(((char*)((DLTensor*)args[3].v_handle)->data + ((DLTensor*)args[3].v_handle)->byte_offset), " +
			Name(exp) + ", 128);",
	} {
		require.Equal(t, 1, strings.Count(text, want), "%s\nin\n%s", want, text)
	}
	// What the statements do not use takes no memory.
	text, err = Source(p, "mine", "", "fused("+Name(p.Inputs[0])+", "+Name(exp)+");", Constants{})
	require.NoError(t, err)
	require.NotContains(t, text, "Workspace(")
}

func TestConstantsStandInTheSource(t *testing.T) {
	t.Parallel()
	p := program(t)
	constants := Constants{}
	require.NoError(t, constants.Replace(p.Inputs[0]+1,
		byoc.Tensor{DType: "uint8", Shape: []int64{3}, Data: []byte{0, 9, 255}}))
	text, err := Source(p, "mine", "", "", constants)
	require.NoError(t, err)
	require.Contains(t, text, `static const unsigned char v1_bytes[4] __attribute__((aligned(64))) =`+"\n"+`"\000\011\377"`)
	require.Contains(t, text, "const uint8_t* v1 = (const uint8_t*)v1_bytes;")
}

func TestConstantsHaveOneForm(t *testing.T) {
	t.Parallel()
	constants := Constants{}
	one := byoc.Tensor{DType: "uint8", Shape: []int64{2}, Data: []byte{1, 2}}
	require.NoError(t, constants.add(7, one))
	require.NoError(t, constants.add(7, one))
	other := one
	other.Data = []byte{2, 1}
	require.ErrorContains(t, constants.add(7, other), "pack it differently")
	other.Shape = []int64{3}
	require.ErrorContains(t, constants.Replace(7, other), "has 2 bytes, [3] uint8 takes 3")
	other.DType = "custom[x]8"
	require.ErrorContains(t, constants.Replace(7, other), "which C source cannot hold")
	constants[8] = byoc.Tensor{DType: "uint8", Data: make([]byte, MaxConstants+1)}
	_, err := Source(program(t), "mine", "", "", constants)
	require.ErrorContains(t, err, "more than 64 MiB")
}
