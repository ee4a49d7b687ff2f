package tokenizer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Vocabularies by the value of tokenizer.ggml.model.
const (
	modelSPM    = "llama"
	modelBPE    = "gpt2"
	modelGemma4 = "gemma4"
)

// kind is what a vocabulary and pre-tokeniser name stand for.
type kind struct {
	split      splitter // BPE only
	byteLevel  bool     // token texts are in GPT-2's byte alphabet
	wholeWords bool     // a pre-token that is itself a token is not merged ("ignore_merges")
	addBOS     bool     // unless the file says otherwise
	forceBOS   bool     // whatever the file says
	bos, eos   int32    // unless the file says otherwise
}

// Upstream's defaults of a "gpt2" vocabulary whose file names no BOS or EOS.
const defaultBPESpecial int32 = 11

// bpeKinds maps the values of tokenizer.ggml.pre to pre-tokenisers. Names on one line are the same to upstream
// but for the clean-up of spaces in decoded text, which this package does not do.
var bpeKinds = func() map[string]kind {
	all := make(map[string]kind)
	add := func(k kind, names ...string) {
		k.byteLevel, k.bos, k.eos = true, defaultBPESpecial, defaultBPESpecial
		for _, n := range names {
			all[n] = k
		}
	}
	add(kind{split: splitLlama3, wholeWords: true, addBOS: true},
		"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano")
	add(kind{split: splitLlama3}, "dbrx", "smaug-bpe")
	add(kind{split: splitQwen2},
		"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2")
	add(kind{split: splitQwen35}, "qwen35")
	add(kind{split: splitGPT2},
		"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum", "modern-bert",
		"exaone4", "mpt", "olmo", "jais", "trillion", "granite-docling")
	add(kind{split: splitDigits}, "smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
	return all
}()

// Supported lists what New accepts: vocabularies, and for "gpt2" the pre-tokenisers.
func Supported() (models, preTokenizers []string) {
	return []string{modelSPM, modelBPE, modelGemma4}, slices.Sorted(maps.Keys(bpeKinds))
}

// UnsupportedError says which vocabulary or pre-tokeniser of a file is not known.
type UnsupportedError struct {
	File string
	Key  string // the metadata key that names it
	Name string // as in the file; empty if the key is absent
	Have []string
}

func (e *UnsupportedError) Error() string {
	found := fmt.Sprintf("%s is %q", e.Key, e.Name)
	if e.Name == "" {
		found = e.Key + " is missing"
	}
	return fmt.Sprintf("%s: %s; supported are %s: use a model with one of these, since any other tokenisation would give other numbers than upstream",
		e.File, found, strings.Join(e.Have, ", "))
}

// kindOf finds what a model and pre-tokeniser name stand for.
func kindOf(file, model, pre string) (kind, error) {
	models, pres := Supported()
	switch model {
	case modelSPM:
		return kind{addBOS: true, bos: 1, eos: 2}, nil
	case modelGemma4:
		// Gemma 4 files in circulation say add_bos_token = false by mistake; upstream overrides them.
		return kind{split: splitLines, forceBOS: true, bos: none, eos: none}, nil
	case modelBPE:
		k, ok := bpeKinds[pre]
		if !ok {
			return kind{}, &UnsupportedError{File: file, Key: keyPre, Name: pre, Have: pres}
		}
		return k, nil
	}
	return kind{}, &UnsupportedError{File: file, Key: keyModel, Name: model, Have: models}
}
