// SPDX-License-Identifier: Apache-2.0

package csource

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// checks is a test that stands beside the tutorial's package.
const checks = `package mylib

import (
	"testing"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/csource"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

func TestTutorial(t *testing.T) {
	t.Parallel()
	if err := Register(); err != nil {
		t.Fatal(err)
	}
	b, err := byoc.Lookup("mylib")
	if err != nil {
		t.Fatal(err)
	}
	m := relay.NewGraph("r")
	x := m.Var([]int64{2, 3}, "float32")
	tensor := &relay.Type{Kind: relay.TypeTensor, DType: "float32", Shape: []int64{2, 3}}
	y := m.Call("nn.relu", tensor, nil, x)
	g := m.Finish(m.Call("nn.relu", tensor, nil, y))
	if n := len(g.Match(b.Patterns()[0].Shape, y)); n != 1 {
		t.Fatalf("%d matches", n)
	}
	p, err := region.FromGraph(g, "r")
	if err != nil {
		t.Fatal(err)
	}
	text, err := statements(p)
	if err != nil {
		t.Fatal(err)
	}
	constants, err := csource.Pack(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := csource.Source(p, "loops", kernels, text, constants); err != nil {
		t.Fatal(err)
	}
}
`

// The tutorial's Go code is compiled and run as it stands there.
func TestTheTutorialsCode(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a backend: not under -short")
	}
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "add-a-backend.md"))
	require.NoError(t, err)
	_, code, found := strings.Cut(string(page), "```go\n")
	require.True(t, found, "docs/add-a-backend.md has no Go code")
	code, _, found = strings.Cut(code, "```\n")
	require.True(t, found)
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)

	// The package is nowhere but in the overlay.
	folder := t.TempDir()
	replace := map[string]string{}
	for name, text := range map[string]string{"mylib.go": code, "mylib_test.go": checks} {
		file := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		replace[filepath.Join(root, "byoc", "mylib", name)] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	file := filepath.Join(folder, "overlay.json")
	require.NoError(t, os.WriteFile(file, overlay, 0o644))
	binary := filepath.Join(folder, "mylib.test")
	command := exec.Command("go", "test", "-c", "-vet=off", "-overlay", file, "-o", binary,
		"github.com/collage-tvm/collage/byoc/mylib")
	command.Dir = root
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
	command = exec.Command(binary)
	command.Dir = folder
	output, err = command.CombinedOutput()
	require.NoError(t, err, string(output))

	formatted, err := exec.Command("gofmt", "-l", filepath.Join(folder, "mylib.go")).CombinedOutput()
	require.NoError(t, err)
	require.Empty(t, string(formatted), "the code is not formatted as gofmt does")
}
