// SPDX-License-Identifier: Apache-2.0

package csource

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// MaxConstants bounds the bytes of constants in one region's source. A compiler takes some seconds for as much.
const MaxConstants = 64 << 20

// types are the C types of elements. Half floats are handed over as their bits.
var types = map[string]struct {
	name  string
	bytes int64
}{
	"float32": {"float", 4}, "float64": {"double", 8}, "float16": {"uint16_t", 2}, "bfloat16": {"uint16_t", 2},
	"int8": {"int8_t", 1}, "int16": {"int16_t", 2}, "int32": {"int32_t", 4}, "int64": {"int64_t", 8},
	"uint8": {"uint8_t", 1}, "uint16": {"uint16_t", 2}, "uint32": {"uint32_t", 4}, "uint64": {"uint64_t", 8},
	"bool": {"uint8_t", 1},
}

// Name is what a tensor is called in the source: a pointer to its first element.
func Name(v region.ValueID) string { return fmt.Sprintf("v%d", v) }

// Constants are the tensors that stand in the source: those of the program, packed where somebody packs.
type Constants map[region.ValueID]byoc.Tensor

// Pack reads the constants of a program; by, which may be nil, packs them. A constant has one form: operators that want
// the same one in different forms are an error.
func Pack(p *region.Program, by byoc.PackParameters) (Constants, error) {
	packed := Constants{}
	for i := range p.Ops {
		for k, v := range p.Ops[i].Args {
			if !p.IsConstant(v) {
				continue
			}
			t, err := tensor(p, v)
			if err != nil {
				return nil, err
			}
			if by != nil {
				if t, err = by(p.Ops[i].Name, k, t); err != nil {
					return nil, fmt.Errorf("packing argument %d of %s: %w", k, p.Ops[i].Name, err)
				}
			}
			if err := packed.add(v, t); err != nil {
				return nil, fmt.Errorf("argument %d of %s: %w", k, p.Ops[i].Name, err)
			}
		}
	}
	for _, v := range p.Outputs {
		if _, there := packed[v]; p.IsConstant(v) && !there {
			t, err := tensor(p, v)
			if err != nil {
				return nil, err
			}
			packed[v] = t
		}
	}
	return packed, nil
}

// check says what is too much for C source.
func (c Constants) check() error {
	total := 0
	for _, t := range c {
		if total += len(t.Data); total > MaxConstants {
			return fmt.Errorf("its constants take more than %d MiB, which is too much for C source: let the "+
				"backend's emitter "+
				"make a runtime module that holds them", MaxConstants>>20)
		}
	}
	return nil
}

func tensor(p *region.Program, v region.ValueID) (byoc.Tensor, error) {
	data, err := p.ConstantBytes(v)
	t := p.Values[v].Type
	return byoc.Tensor{DType: t.DType, Shape: t.Shape, Data: data}, err
}

// add notes a constant; the same constant has one form.
func (c Constants) add(v region.ValueID, t byoc.Tensor) error {
	before, there := c[v]
	if err := c.Replace(v, t); err != nil {
		return err
	}
	if there && (before.DType != t.DType || string(before.Data) != string(t.Data)) {
		return fmt.Errorf("the constant is read by two operators that pack it differently")
	}
	return nil
}

// Replace gives a constant another form.
func (c Constants) Replace(v region.ValueID, t byoc.Tensor) error {
	if _, known := types[t.DType]; !known {
		return fmt.Errorf("the packed constant has the type %q, which C source cannot hold", t.DType)
	}
	if want := relay.Elements(t.Shape) * types[t.DType].bytes; want != int64(len(t.Data)) {
		return fmt.Errorf("the packed constant has %d bytes, %v %s takes %d", len(t.Data), t.Shape, t.DType, want)
	}
	c[v] = t
	return nil
}

// Source is the whole file of a backend's region: statements between the pointers that they use.
func Source(p *region.Program, backend, prelude, statements string, packed Constants) (string, error) {
	if err := packed.check(); err != nil {
		return "", err
	}
	var s strings.Builder
	// TVM's export compiles without asking for optimisation.
	s.WriteString("#if defined(__GNUC__) && !defined(__clang__)\n#pragma GCC optimize(\"O3\")\n#endif\n")
	s.WriteString("#include <stdint.h>\n#include <string.h>\n#include <tvm/runtime/c_backend_api.h>\n" +
		"#include <tvm/runtime/c_runtime_api.h>\n\n")
	origin := p.Origin(backend)
	startOf(&s, "prelude of "+origin)
	s.WriteString(strings.TrimRight(prelude, " \t\r\n")) // its lines keep their numbers
	s.WriteString("\n\n")
	startOf(&s, p.Symbol)
	for v := range p.Values {
		if t, ok := packed[region.ValueID(v)]; ok {
			fmt.Fprintf(&s, "static const unsigned char %s_bytes[%d] __attribute__((aligned(64))) =\n",
				Name(region.ValueID(v)), len(t.Data)+1)
			writeBytes(&s, t.Data)
		}
	}
	count := len(p.Inputs) + len(p.Outputs)
	fmt.Fprintf(&s, "extern \"C\" TVM_DLL int32_t %s(TVMValue* args, int32_t*, int32_t count, TVMValue*, int32_t*, "+
		"void*) {\n", p.Symbol)
	fmt.Fprintf(&s, "  if (count != %d) {\n    TVMAPISetLastError(\"%s takes %d tensors\");\n    return -1;\n  }\n",
		count, p.Symbol, count)
	var workspaces, copies []string
	declared := map[region.ValueID]bool{}
	for i, v := range p.Inputs {
		declared[v] = true
		if err := declare(&s, p, v, "const ", argument(i)); err != nil {
			return "", err
		}
	}
	for v := range p.Values {
		if t, ok := packed[region.ValueID(v)]; ok {
			declared[region.ValueID(v)] = true
			fmt.Fprintf(&s, "  const %[2]s* %[1]s = (const %[2]s*)%[1]s_bytes;\n", Name(region.ValueID(v)),
				types[t.DType].name)
		}
	}
	for i, v := range p.Outputs {
		at := argument(len(p.Inputs) + i)
		if declared[v] { // an input, a constant, or a result that is given twice
			bytes, err := size(p, v)
			if err != nil {
				return "", err
			}
			copies = append(copies, fmt.Sprintf("  memcpy(%s, %s, %d);\n", at, Name(v), bytes))
			continue
		}
		declared[v] = true
		if err := declare(&s, p, v, "", at); err != nil {
			return "", err
		}
	}
	for v := range p.Values {
		id := region.ValueID(v)
		if declared[id] || !mentions(statements, id) {
			continue
		}
		bytes, err := size(p, id)
		if err != nil {
			return "", err
		}
		if err := declare(&s, p, id, "", fmt.Sprintf("TVMBackendAllocWorkspace(1, 0, %d, 2, 32)",
			max(bytes, 1))); err != nil {
			return "", err
		}
		fmt.Fprintf(&s, "  if (%s == NULL) return -1;\n", Name(id))
		workspaces = append(workspaces, Name(id))
	}
	s.WriteString("  {\n")
	startOf(&s, "statements of "+origin)
	s.WriteString(strings.TrimRight(statements, "\n"))
	s.WriteByte('\n')
	startOf(&s, p.Symbol)
	s.WriteString("  }\n")
	s.WriteString(strings.Join(copies, ""))
	for i := len(workspaces) - 1; i >= 0; i-- { // they are a stack
		fmt.Fprintf(&s, "  TVMBackendFreeWorkspace(1, 0, %s);\n", workspaces[i])
	}
	s.WriteString("  return 0;\n}\n")
	return s.String(), nil
}

// startOf makes the C compiler tell what follows as lines of a file of that name, 1 and on: so what it says of a
// backend's code says whose that is (python/collage/c_sources.py reads it).
func startOf(s *strings.Builder, name string) {
	fmt.Fprintf(s, "#line 1 \"%s\"\n", strings.NewReplacer("\\", "/", `"`, "'", "\n", " ").Replace(name))
}

// argument is the data of the tensor that the caller hands over at place i.
func argument(i int) string {
	return fmt.Sprintf("((char*)((DLTensor*)args[%[1]d].v_handle)->data + "+
		"((DLTensor*)args[%[1]d].v_handle)->byte_offset)", i)
}

func declare(s *strings.Builder, p *region.Program, v region.ValueID, qualifier, value string) error {
	t, known := types[p.Values[v].Type.DType]
	if !known {
		return fmt.Errorf("a tensor has the type %s, which C source cannot hold", p.Values[v].Type.DType)
	}
	fmt.Fprintf(s, "  %s%s* %s = (%s%s*)%s;\n", qualifier, t.name, Name(v), qualifier, t.name, value)
	return nil
}

func size(p *region.Program, v region.ValueID) (int64, error) {
	t := p.Values[v].Type
	kind, known := types[t.DType]
	if !known {
		return 0, fmt.Errorf("a tensor has the type %s, which C source cannot hold", t.DType)
	}
	return relay.Elements(t.Shape) * kind.bytes, nil
}

func mentions(text string, v region.ValueID) bool {
	return regexp.MustCompile(`\b` + Name(v) + `\b`).MatchString(text)
}

// writeBytes writes data as string literals. Compilers read those much faster than lists of numbers.
func writeBytes(s *strings.Builder, data []byte) {
	const line = 4096
	for start := 0; start < len(data) || start == 0; start += line {
		s.WriteByte('"')
		for _, b := range data[start:min(start+line, len(data))] {
			s.Write([]byte{'\\', '0' + b>>6, '0' + b>>3&7, '0' + b&7})
		}
		s.WriteString("\"\n")
	}
	s.WriteString(";\n")
}
