// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"bytes"
	"embed"
	"fmt"
	"strconv"
	"strings"
	"text/template"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/cmd/internal/runmodel"
)

//go:embed templates
var templates embed.FS

// text is one file that is written for a model.
type text struct {
	name, template string
	// example says that it is a program that calls TVM's graph executor.
	example bool
}

var texts = []text{
	{"README.md", "README.md.tmpl", false},
	{"Dockerfile", "Dockerfile.tmpl", false},
	{exampleFolder + "/model.h", "model.h.tmpl", true},
	{exampleFolder + "/run.c", "run.c.tmpl", true},
	{exampleFolder + "/run.cc", "run.cc.tmpl", true},
	{exampleFolder + "/run.go", "run.go.tmpl", true},
	{exampleFolder + "/run.py", "run.py.tmpl", true},
}

// tensor is an input or output as programs have it.
type tensor struct {
	Index                   int
	Name                    string
	DType                   string
	Code, Bits, Rank, Bytes int64
	// Shape is its extents with commas between them; "1" for a number by itself, which C has no empty array for.
	Shape string
}

// writeTexts writes what is made for the model: how to run it, a container file, and programs that load it. There are no
// programs for TVM's virtual machine.
func (p *packer) writeTexts() error {
	inputs, err := tensors(p.content.Inputs)
	if err != nil {
		return err
	}
	outputs, err := tensors(p.content.Outputs)
	if err != nil {
		return err
	}
	parsed, err := template.New("").Funcs(template.FuncMap{"quote": strconv.Quote, "join": strings.Join}).
		ParseFS(templates, "templates/*.tmpl")
	if err != nil {
		return err
	}
	values := map[string]any{"Manifest": &p.manifest, "Inputs": inputs, "Outputs": outputs,
		"Examples": !p.content.VirtualMachine}
	for _, one := range texts {
		if one.example && p.content.VirtualMachine {
			continue
		}
		var made bytes.Buffer
		if err := parsed.ExecuteTemplate(&made, one.template, values); err != nil {
			return err
		}
		if err := p.put(one.name, 0o644, &made); err != nil {
			return err
		}
	}
	return nil
}

func tensors(infos []runmodel.TensorInfo) ([]tensor, error) {
	var made []tensor
	for i, info := range infos {
		dtype, err := bridge.ParseDataType(info.DType)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", info.Name, err)
		}
		bytes := (int64(dtype.Bits) + 7) / 8
		words := []string{}
		for _, extent := range info.Shape {
			bytes *= extent
			words = append(words, strconv.FormatInt(extent, 10))
		}
		if len(words) == 0 {
			words = []string{"1"}
		}
		made = append(made, tensor{i, info.Name, info.DType, int64(dtype.Code), int64(dtype.Bits),
			int64(len(info.Shape)), bytes, strings.Join(words, ", ")})
	}
	return made, nil
}
