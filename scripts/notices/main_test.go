// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What tells each licence that NOTICE names from the others.
var phrases = map[string]string{
	"MIT":          "Permission is hereby granted, free of charge",
	"BSD-3-Clause": "Redistribution and use in source and binary forms",
	"FTL":          "The FreeType Project",
	"Apache-2.0":   "Apache License",
}

func TestNoticeNamesWhatIsLinked(t *testing.T) {
	t.Parallel()
	modules, err := linked("../..")
	require.NoError(t, err)
	require.NotEmpty(t, modules)
	notice, err := os.ReadFile("../../NOTICE")
	require.NoError(t, err)
	named := regexp.MustCompile(`(?m)^ +(\S+\.\S+/\S+) (v\S+) +(\S+)`).FindAllStringSubmatch(string(notice), -1)
	var want, got []string
	for _, m := range modules {
		want = append(want, m.Path+" "+m.Version)
	}
	for _, fields := range named {
		got = append(got, fields[1]+" "+fields[2])
	}
	assert.Equal(t, want, got, "NOTICE lists each module that is linked in, by path")
	for i, fields := range named {
		require.Contains(t, phrases, fields[3], fields[1])
		files, err := licences(modules[min(i, len(modules)-1)].Dir)
		require.NoError(t, err)
		var text string
		for _, file := range files {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			text += strings.Join(strings.Fields(string(content)), " ")
		}
		assert.Contains(t, text, phrases[fields[3]], "%s: NOTICE says %s", fields[1], fields[3])
	}
}

func TestNoticeNamesWhatDrawsPages(t *testing.T) {
	t.Parallel()
	notice, err := os.ReadFile("../../NOTICE")
	require.NoError(t, err)
	list, err := os.ReadFile("../report-libraries.txt")
	require.NoError(t, err)
	libraries := regexp.MustCompile(`(?m)^(\w+ [\d.]+) LICENSE`).FindAllStringSubmatch(string(list), -1)
	require.Len(t, libraries, 2)
	for _, library := range libraries {
		assert.Contains(t, string(notice), library[1]+" ")
	}
}

func TestTextsOfEach(t *testing.T) {
	t.Parallel()
	tvm := t.TempDir()
	for path, text := range map[string]string{
		"dlpack/LICENSE":      "of DLPack",
		"dmlc-core/LICENSE":   "of dmlc-core",
		"picojson/picojson.h": "/*\n * of picojson\n */\n#pragma once\n",
	} {
		path = filepath.Join(tvm, "3rdparty", path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	var out bytes.Buffer
	require.NoError(t, write(&out, "../..", tvm))
	assert.True(t, utf8.Valid(out.Bytes()))
	modules, err := linked("../..")
	require.NoError(t, err)
	for _, m := range modules {
		assert.Contains(t, out.String(), m.Path+" "+m.Version+"\n===")
	}
	for _, text := range []string{"of DLPack", "of dmlc-core", "of picojson", "The Go Authors", "FreeType",
		"TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION"} {
		assert.Contains(t, out.String(), text)
	}
	assert.NotContains(t, out.String(), "pragma once")

	// Without one of the texts there is no file.
	require.NoError(t, os.Remove(filepath.Join(tvm, "3rdparty", "dlpack", "LICENSE")))
	assert.Error(t, write(&out, "../..", tvm))
}
