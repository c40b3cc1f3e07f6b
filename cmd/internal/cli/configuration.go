// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/collage-tvm/collage/internal/nearest"
)

const (
	// configurationFile holds flags that one does not want to type again, where the command is run.
	configurationFile = "collage.yaml"
	// configurationEnv names another such file; set to nothing, none is read.
	configurationEnv = "COLLAGE_CONFIGURATION"
	// mostConfiguration is the size in bytes up to which a file can be meant.
	mostConfiguration = 1 << 20
)

// fromFile marks a flag that the configuration set and nobody typed.
const fromFile = "collage.yaml"

// typed says whether the user gave a flag on the command line.
func typed(flags *pflag.FlagSet, name string) bool {
	f := flags.Lookup(name)
	return f != nil && f.Changed && f.Annotations[fromFile] == nil
}

// configure sets those flags of a command that the configuration has and that were not typed. The file maps flags to
// what they are to be, for all commands that have them, and commands to such flags of their own, which go before:
//
//	backends: [tvm, dnnl, native]
//	compile:
//	  search-time: 5m
//
// It gives the file's name and the flags that were set, as they would be typed.
func configure(command *Command, flags *pflag.FlagSet) (path string, set []string, err error) {
	path, named := os.LookupEnv(configurationEnv)
	if !named {
		path = configurationFile
	} else if path == "" {
		return "", nil, nil
	}
	root, err := readConfiguration(path)
	if err != nil {
		if !named && errors.Is(err, os.ErrNotExist) {
			return "", nil, nil
		}
		return "", nil, err
	}
	if root == nil {
		return path, nil, nil
	}
	general, own, err := sections(path, root, command)
	if err != nil {
		return "", nil, err
	}
	for _, pairs := range [][]pair{own, general} {
		for _, p := range pairs {
			f := flags.Lookup(p.key.Value)
			if f == nil || f.Changed {
				continue // of another command, typed, or set by the command's own part
			}
			if err := assign(flags, f, p.value); err != nil {
				return "", nil, fmt.Errorf("%s:%d: %s: %w", path, p.value.Line, p.key.Value, err)
			}
			if err := flags.SetAnnotation(f.Name, fromFile, []string{path}); err != nil {
				return "", nil, err
			}
			set = append(set, fmt.Sprintf("--%s %s", f.Name, quoteIfNeeded(strings.Trim(f.Value.String(), "[]"))))
		}
	}
	return path, set, nil
}

type pair struct{ key, value *yaml.Node }

// readConfiguration gives the mapping that a file is; nil for an empty one.
func readConfiguration(path string) (*yaml.Node, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, mostConfiguration+1))
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if len(text) > mostConfiguration {
		return nil, fmt.Errorf("configuration: %s has more than %d bytes; it maps flags to what they are to be", path,
			mostConfiguration)
	}
	var document yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	root := document.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: it must map flags to what they are to be, as in backends: [tvm, dnnl]", path, root.Line)
	}
	return root, nil
}

// sections gives what a configuration has for all commands and for one, and finds names that nothing has.
func sections(path string, root *yaml.Node, command *Command) (general, own []pair, err error) {
	byName := map[string][]string{}
	var all, names []string
	for _, c := range describe(commands()) {
		if len(c.Parts) > 0 {
			continue
		}
		names = append(names, c.Name)
		for _, f := range c.Flags {
			byName[c.Name] = append(byName[c.Name], f.Name)
			if !slices.Contains(all, f.Name) {
				all = append(all, f.Name)
			}
		}
	}
	unknown := func(node *yaml.Node, what string, among []string) error {
		if near := nearest.Word(node.Value, among); near != "" {
			return fmt.Errorf("%s:%d: %s %s: did you mean %s?", path, node.Line, what, quoteIfNeeded(node.Value), near)
		}
		return fmt.Errorf("%s:%d: %s %s", path, node.Line, what, quoteIfNeeded(node.Value))
	}
	for at := 0; at < len(root.Content); at += 2 {
		key, value := root.Content[at], root.Content[at+1]
		switch {
		case slices.Contains(names, key.Value) && value.Kind == yaml.MappingNode:
			for in := 0; in < len(value.Content); in += 2 {
				flag := pair{value.Content[in], value.Content[in+1]}
				if !slices.Contains(byName[key.Value], flag.key.Value) {
					return nil, nil, unknown(flag.key, key.Value+" has no flag", byName[key.Value])
				}
				if key.Value == command.Name {
					own = append(own, flag)
				}
			}
		case slices.Contains(all, key.Value):
			general = append(general, pair{key, value})
		case slices.Contains(names, key.Value):
			return nil, nil, fmt.Errorf("%s:%d: %s is a command: it maps its flags to what they are to be", path, value.Line,
				key.Value)
		default:
			return nil, nil, unknown(key, "there is no command and no flag", append(slices.Clone(names), all...))
		}
	}
	return general, own, nil
}

// assign gives a flag what a file says: a value, or a list where it takes several.
func assign(flags *pflag.FlagSet, f *pflag.Flag, value *yaml.Node) error {
	var words []string
	switch value.Kind {
	case yaml.ScalarNode:
		words = []string{value.Value}
	case yaml.SequenceNode:
		if !strings.HasPrefix(f.Value.Type(), "string") || f.Value.Type() == "string" {
			return fmt.Errorf("one value is wanted, and no list")
		}
		for _, each := range value.Content {
			if each.Kind != yaml.ScalarNode {
				return errors.New("a list of words is wanted")
			}
			words = append(words, each.Value)
		}
	default:
		return errors.New("a value is wanted")
	}
	if f.Value.Type() == "stringSlice" {
		words = []string{strings.Join(words, ",")}
	}
	for _, word := range words {
		err := flags.Set(f.Name, word)
		var invalid *pflag.InvalidValueError
		if errors.As(err, &invalid) {
			return fmt.Errorf("%s: %s", quoteIfNeeded(word), valueFault(invalid))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
