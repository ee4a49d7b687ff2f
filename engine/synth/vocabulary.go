package synth

import "fmt"

// pieces are the merged pieces of the vocabulary, most frequent first.
var pieces = []string{
	"▁", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", "u", "v", "w", "x", "y", "z",
	"▁t", "▁a", "he", "in", "er", "an", "▁the", "on", "re", "at", "en", "▁s", "▁o", "nd", "or", "▁w", "▁and", "es", "is", "it", "ou",
	"ing", "▁of", "ed", "al", "ar", "▁in", "to",
}

// Token types of tokenizer.ggml.token_type.
const (
	normalToken  = 1
	unknownToken = 2
	controlToken = 3
	unusedToken  = 5
	byteToken    = 6
)

// vocabulary adds a SentencePiece vocabulary of n tokens, at least the 314 that are of use: unknown, begin, end, the 256
// bytes and a few pieces. The rest are unused.
func (b *builder) vocabulary(n int, addBOS bool) {
	tokens, scores, types := make([]string, 0, n), make([]float32, 0, n), make([]int32, 0, n)
	add := func(text string, score float32, kind int32) {
		tokens, scores, types = append(tokens, text), append(scores, score), append(types, kind)
	}
	add("<unk>", 0, unknownToken)
	add("<s>", 0, controlToken)
	add("</s>", 0, controlToken)
	for i := range 256 {
		add(fmt.Sprintf("<0x%02X>", i), 0, byteToken)
	}
	for i, p := range pieces {
		add(p, -float32(i+1), normalToken)
	}
	for i := len(tokens); i < n; i++ {
		add(fmt.Sprintf("<unused%d>", i), 0, unusedToken)
	}
	b.set("tokenizer.ggml.model", "llama")
	b.set("tokenizer.ggml.tokens", tokens)
	b.set("tokenizer.ggml.scores", scores)
	b.set("tokenizer.ggml.token_type", types)
	b.set("tokenizer.ggml.bos_token_id", uint32(1))
	b.set("tokenizer.ggml.eos_token_id", uint32(2))
	b.set("tokenizer.ggml.unknown_token_id", uint32(0))
	b.set("tokenizer.ggml.add_bos_token", addBOS)
	b.set("tokenizer.ggml.add_space_prefix", true)
}
