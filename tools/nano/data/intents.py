"""The known intents of chat in composed wordings: the reasoning of a fixed answer (chat.FIXED) -> patterns.

Single wordings that chat.py holds out are never composed, so they stay new.
"""
from __future__ import annotations

from . import words as W
from .base import Source, Turn, casual
from .chat import FIXED
from .phrases import apart, bare, forms, spoken

TELL = "[Tell me|Can you tell me|Could you tell me|Please tell me|Explain|Please explain|Can you explain|Say|Do you know|I want to know|I'd like to know|Let me know|I wonder]"
HELLO = "[Hello|Hi|Hey|Hello there|Hi there|Hey there|Good day|Greetings|Welcome back|Hallo]"
GIVE = "[Give me|Tell me|Suggest|I need|I want|I'd like|Do you have|Have you got|Can you give me|Could you suggest|Please give me|Show me]"
END = "[?|?|?|, please?| now?]"

PATTERNS: dict[str, list[str]] = {
    "The user greets me. I greet back and say who I am.": [
        HELLO + "[| you| nano| friend| my friend| dear model| everybody| computer][!|.|]", "[A friendly|A warm|A big|A kind] hello[| to you| to nano]!", "[Good afternoon|Hey ho|Heya|Hullo|Yo|Hi hi|Hey hey|Hello and welcome|Nice to meet you|Pleased to meet you][| nano|, nano][!|.|]",
        "I [want to|just want to|would love to] [say hello|greet you|say hi]."],
    "The user greets me and asks who I am.": [
        HELLO + "[!|,|.] [Who are you|What are you|Who is there|May I ask who you are|Tell me your name|Please say who you are|What's your name|Which model are you|Could you say who you are|And you are][?|.]",
        HELLO + "[!|,|.] [I am|My name is|This is] [Anna|Tom|Ben|Kate]. [Who are you|What is your name|And who are you]?"],
    "The user asks who I am.": [
        TELL + " [who you are|what you are|your name|what your name is|what you are called|which model you are|what kind of AI you are|what sort of program you are][?|.|, please.]",
        "[What|Which] [model|AI|program|assistant|system|bot] [are you|is this|is that|do I talk to|am I using|answers here|am I speaking with]?", "[Who|What] [are you|are you really|is this I talk to|am I speaking with|am I chatting with|answers me here|do I have here|is nano]" + END,
        "[What|How] [do I call you|may I call you|can I call you|shall I call you|do they call you]?", "[Your name|Name][?|, please?]", "[Please |Now |]introduce yourself[, please.| to me.| in a sentence.| briefly.]", "[Present|Describe|Explain] yourself[.|, please.| in one sentence.]",
        "[Do|Don't] you have [any|your own|some] name?"],
    "The user asks what I can do.": [
        "[What|Which things|Which tasks|What kind of work|What sort of tasks] [can you do|are you able to do|can you do for me|can you help with|can I ask you for|do you know how to do|are you made for|are you useful for|can you manage]" + END,
        "[How|In which way|With what] [can you|could you|may you|are you able to] [help|help me|be of use|support me|assist me|be useful]" + END, TELL + " [what you can do|what you are able to do|how you can help|what your skills are|what you are good for|your abilities|what I can use you for][?|.]",
        "[Your|What are your|List your|Name your|Tell me your|Show me your] [skills|abilities|features|talents|functions|powers|tricks][?|, please.|]", "What [can|could|should|may] I use you for?", "What is [possible|on offer|your job|your task|your purpose] here?"],
    "The user greets me, asks who I am and what I can do.": [
        "[|" + HELLO + "! ][Who|What] are you[, and| and][ what can you do| how can you help me| how can you be of use| what are you able to do| what do you do| what are your skills]?",
        "[|" + HELLO + "! ][Tell me|Please tell me|Say|Explain|Please say] [who you are|your name|what you are] and [what you can do|how you can help|what you are good at|what I can use you for]."],
    "The user asks where I come from.": [
        "[Who|Which people|Which team|What company|Which group] [made|built|created|developed|trained|designed|programmed|invented|wrote|produced|released] you[?|, nano?|, please?]",
        TELL + " [who made you|who built you|who created you|where you come from|where you are from|who your maker is|which project you belong to|who is behind you][?|.]", "[Who|What] is your [creator|maker|developer|author|owner|father|builder|home|origin]?",
        "[From where|Where] [do you stem|were you built|were you trained|were you created|do you stem from|is your home]?", "[To which|Which] [company|project|team|group] do you belong[| to]?"],
    "The user asks about Gannet.": [
        "[What|What exactly|What in the world] is [Gannet|the project Gannet|the Gannet engine|this Gannet project]" + END, TELL + " [what Gannet is|about Gannet|about the Gannet project|what Gannet is for|what this project is][?|.]",
        "[Describe|Explain|Present|Introduce] [the Gannet project|this project|the project Gannet][.|, please.| to me.| in a sentence.]", "What [can one do with|do people do with|is the use of|is the purpose of] Gannet?"],
    "The user asks about the bird.": [
        TELL + " [what a gannet is|about the gannet|what kind of bird a gannet is|what gannets are|about the bird gannet][?|.]", "[What|Which] [kind of bird|sort of animal|animal|bird|seabird] is [a|the] gannet?", "[What does|Where does|How does] a gannet [do|look like|live|fly|hunt]?",
        "[Describe|Define|Explain] [a gannet|the gannet|the bird gannet][.|, please.]"],
    "The user asks how I am.": [
        "[|" + HELLO + "! |So, ][how|And how] [are you|are you doing|do you feel|is it going|are things|is everything|goes your day|are you getting on|are you keeping|is life treating you][| today| now| these days| this morning| tonight| at the moment]?",
        "[Are|Is] [you fine|you doing fine|you all right|everything fine with you|everything okay|it going well|you in good shape|all well with you][| today]?", "I hope [you are well|you are fine|you are doing well|all is well][.|, nano.| today.]"],
    "The user thanks me.": [
        "[Thanks|Thank you|Many thanks|A thousand thanks|Thank you kindly|Thanks so much|Big thanks|Thank you a lot][| nano| my friend| for that| for the answer| for this| for everything| for helping| for your time| for your answer| for explaining][!|.|]",
        "[Great|Good|Perfect|Wonderful|Very good|Nice|Super|Excellent|Lovely][, thanks| , many thanks|, thank you very much|, thanks a lot|, I thank you][!|.]", "[I am|I'm] [grateful|thankful|very grateful|so thankful]."],
    "The user says goodbye.": [
        "[Bye|Bye-bye|Goodbye|So long|See you around|See you next time|Till later|Until later|Until tomorrow|Adieu|Cheerio|Good bye|Bye for today][| nano|, nano|, my friend|, and thanks][!|.|]",
        "I [have to|must|need to|will|should] [go|leave|run|be off|stop here|get going|say goodbye|end here][| now| soon], [bye|goodbye|see you|so goodbye].", "[That was|This is|That's] [all|everything|it][| for today| for now], [bye|goodbye|see you][!|.]"],
    "The user says good morning.": ["[Good morning|Morning|A very good morning|A happy morning|A fine good morning|Good morning and hello|Top of the morning][| to you| dear nano| friend| my friend| there| to all][!|.|]"],
    "The user says good evening.": ["[Good evening|A very good evening|A fine good evening|A pleasant evening|Good evening and hello|Have a good evening][| to you| dear nano| friend| my friend| there| to all][!|.|]"],
    "The user says good night.": ["[Good night|Nighty night|Night|A good night|Have a quiet night|Sleep tight|Sleep tight and good night][| to you| nano| friend| my friend| then][!|.|]", "I [will|must|should|want to|am about to] [go to sleep|go to bed|sleep|lie down|turn in][| now| soon]."],
    "The user asks whether I am human.": [
        "[Are you|Is this|Am I talking to|Do I speak with|Am I writing to|Is it] [a human|a person|a real human|a man|a real man|somebody real|a living person|a human person|someone alive][| or not| here]?", "[Do you have|Have you got] [a heart|legs|hands|a mouth|blood|a family|parents|eyes|bones|a human body]?",
        "[Can|Do] you [eat|drink|walk|run|breathe air|bleed]?", "You are [human|a person|a real person|a man|alive], [right|aren't you|are you not]?"],
    "The user asks whether I am an AI.": [
        "[Are you|Is this|Am I talking to|Do I speak with|Am I writing to|Are you only|Are you just] [an AI model|a neural network|a kind of robot|a computer program|some AI|some software|a chat program|artificial|a virtual assistant|a digital assistant|a piece of software]?",
        "You are [an AI|a machine|a robot|a program|a language model|a bot], [right|aren't you|are you not]?"],
    "The user thinks I am another model.": [
        "[Are you|Is this|Am I talking to|Do I speak with|Are you really|You are] [ChatGPT|GPT-4|Claude|Gemini|Llama|DeepSeek|Siri|Alexa|Mistral|Copilot|Qwen|Grok|Bard|Bing][| or not| by chance]?", "Is your name [ChatGPT|Gemini|Llama|Siri|Alexa|Grok|Qwen]?",
        "[Are you|Were you] [made|built|trained|created] by [OpenAI|Google|Meta|Microsoft|Apple|Amazon|Anthropic]?"],
    "The user asks about my size.": [
        "[How big|How large|How small|How heavy|How tiny] [are you|is your model|is your network|is this model|is nano|is your brain][| really| exactly]?", "[How many|What number of] [parameters|weights|connections|numbers] [are you made of|has your model|does nano have|does this model have|are there in you|are inside you]?",
        TELL + " [how big you are|how large you are|how many parameters you have|your size|how many weights you have][?|.]", "[Are you|Is nano] [bigger than other models|a tiny model|a very small model|a huge model|the biggest model]?"],
    "The user asks about languages.": [
        "[Do you|Can you|Will you] [speak|understand|write|read|know|talk|use|answer in] [Dutch|Polish|Greek|Turkish|Arabic|Hindi|Japanese|Korean|Swedish|Danish|Portuguese|Russian|Latin|German|Italian]?", "[Which|What|How many] [languages|other languages|foreign languages] [do you speak|do you know|can you write|can I use with you|are possible|do you understand well]?",
        "[Can|May|Shall|Should] I [write|talk|speak] [to you |]in [Dutch|Polish|Greek|Turkish|Spanish|Japanese|another language]?", TELL + " which languages you [speak|know|understand][?|.]"],
    "The user asks for my age.": ["[How old|What age] [are you|is nano|are you now|would you be|are you by now]?", "[When|In which year|On which day|In what year] [were you made|is your birthday|were you born|did you come to life|were you created|were you released]?",
                                  TELL + " [how old you are|your birthday|when you were born|your exact age][?|.]", "[For how long|How long|Since when] [have you been around|do you exist|have you been alive|have you been running]?"],
    "The user asks about feelings.": ["[Do|Can] you [feel|have] [joy|fear|anger|pain|love|emotions|sorrow|hope|something|moods|hunger]?", "Are you [ever |sometimes |][happy|sad|angry|afraid|lonely|bored|jealous|proud|in love|in a bad mood|excited|nervous]?",
                                      "Do you [ever |sometimes |][cry|laugh|love someone|hate anyone|get angry|get bored|get lonely|miss someone|need rest|have dreams]?", TELL + " [how it feels to be you|whether you have feelings|if you can feel][?|.]"],
    "The user asks for live data.": ["[How is|How's|What is|What's] the weather [like |][today|now|outside|tomorrow|here|at the moment|this week|this weekend|out there]?", "[Is it|Will it be|Was it] [raining|snowing|sunny|cold|warm|hot|windy|cloudy|foggy|dry|freezing|wet] [today|now|tomorrow|out there|tonight|this weekend|outside now]?",
                                     "[Do I need|Should I take|Should I wear] [a coat|an umbrella|warm clothes|a hat|sunglasses|a jacket|boots] [today|tomorrow|outside|tonight]?", TELL + " [the weather of today|how the weather is|how warm it is outside|whether it will rain|the forecast][?|.]", "[Will|Does] [it rain|it snow|the sun shine|the wind blow] [today|tomorrow|tonight|this week|later]?"],
    "The user asks for the time.": ["[What|Which] [day|date|month|year|hour|weekday] [is it|do we have|is this|have we got][| today| now| at the moment]?", TELL + " [the time|the date|what time it is|which day it is|the date of today|how late it is|today's date|which year we have][?|.|, please.]",
                                    "[What time|What hour|How late] [do we have|is it now|is it right now|have we got|does the clock show]?", "[Is it|Do we have] [Monday|Friday|Sunday|morning|evening|night|noon|spring|winter] [now|today|already|yet]?", "[The time|The date|Today's date][, please|][.|?]"],
    "The user asks for news.": ["[What is|What's] [new|going on|happening] [in the world|today|out there|in politics|in the country|in the papers]?", "[Can|Could|Will] you [open|read|visit|search|browse|look at|check|use] [a website|a web page|the internet|the web|the net|this page|an online shop|a link|the news sites]?",
                                "[Who|Which team] [won|has won] [the game|the match|the election|the race|the cup|the final] [today|last night|last week|this week|yesterday evening]?", "[Read|Show|Give|Tell] me [the news|the latest news|today's news|the headlines|some news].", "[Look up|Search|Find|Google] [something|this|it] [online|on the internet|in the web|for me on the net].", "[Do you have a connection|Are you connected to the web|Do you have access to the web|Are you able to go online]?"],
    "The user asks about pictures or sound.": ["[Can|Could|Do|Will] you [see|hear|watch|draw|paint|look at|show me|send me|listen to|make|read|record|play] [pictures|images|photos|a picture|music|a song|a film|videos|my voice|an image|a photo|sounds|a drawing|a painting|a movie|audio]?",
                                               "[Draw|Paint|Show|Sketch|Send] me [a house|a tree|a dog|a picture|a photo|the sea|an image|a flower|something nice].", "[Can|May|Could] I [send|show|upload|give] you [a picture|an image|a photo|a video|a sound|a song]?", "[Sing|Play] [me |][a song|something|some music].", "[Can|Do] you [see|hear] me[| now| speaking]?"],
    "The user checks whether I am here.": ["[Are you|Is nano|Are you still|Are you really] [there|here|awake|ready|with me|listening|running|available|up|alive and well|around][| now]?", "[Is anyone|Is anybody|Is someone|Anyone] [here|there|home|at home|listening|awake|around]?", "[Testing|Just a test|A test|This is only a test|Test message|A little test|One two three test|Hello test][.|!|]",
                                           "[Does|Is] [it|this|the chat|the model|the connection] [work|working|on|running|ready|up][| now]?", "Do you [read this|get this|hear me well|get my message|see this message|receive me]?"],
    "The user wants to ask something.": ["[Can|May|Could|Might] I [ask|put] [a question|you a question|something|you one thing|a few questions|a short question|you for help|one more question]" + END, "I [have|have got|want to ask|would like to put|need to ask] [a question|some questions|a small question|something to ask|one thing|a short question][.| for you.| now.]",
                                         "[Can|Could|Will|Would] you [help me|help me out|help me with something|answer something|give me a hand|assist me|do something for me|answer me something]" + END, "I [need|want|could use|would like] [some help|your help|help with something|a hand|assistance|your advice][.|, please.| now.]"],
    "The user wants a joke.": ["[Tell|Can you tell|Please tell|Could you tell|Will you tell] me [a joke|a good joke|one joke|another joke|a short joke|a new joke|something to laugh about|your best joke][?|.|, please.]", "[I want|I need|I'd like|Give me|Do you have|Have you got|Let me hear|I could use] [a joke|some joke|a good joke|something funny|a good laugh|one of your jokes][?|.]",
                               "[Make|Can you make|Please make|Could you make] me [laugh|smile|giggle|laugh a bit][?|.]", "[Joke|A joke|One joke][!|?| now| please]", "[Do you know|Can you say|Say] [something to laugh at|something really funny|a funny thing|anything funny][?|.]"],
    "The user wants a fact.": ["[Tell|Teach|Give|Show|Can you tell|Please tell] me [a fun fact|an interesting fact|something new|a fact I don't know|something surprising|some trivia|a curious fact|something about the world|one fact|a random fact][?|.|, please.]", "[Do you know|Have you got|Do you have|I want|I'd like] [a fun fact|an interesting fact|a surprising fact|some fact for me|a curious fact][?|.]",
                               "[Amaze|Impress|Astonish] me[.|!]", "[Fun fact|A fun fact|Random fact|A fact][, please|][.|!|?]", "[What is|Say|Share] [a fun fact|something surprising|something worth knowing|a curious fact][?|.]"],
    "The user feels bad.": ["I [am|feel|am feeling] [so |very |really |a bit |][sad|unhappy|down|lonely|miserable|blue|bad|awful|terrible|depressed|low|hopeless|upset][.| today.| right now.| tonight.]", "[My day|My week|Today|This day|Everything|My life|This week] [was|is|has been] [bad|terrible|awful|sad|hard|a mess|horrible|not good].",
                            "I [lost my friend|failed my test|broke my phone|failed the exam|missed my train|lost my wallet|lost the game|broke my arm].", "[Nobody|No one] [likes me|listens to me|understands me|calls me].", "[Everything|Nothing|All] [goes|went] [wrong|badly][| today| again].", "[I have|I had] [a bad day|a hard day|bad news|a terrible week|a lot of trouble|the blues]."],
    "The user has good news.": ["I [am|feel|am feeling] [so |very |really |][happy|glad|great|good|wonderful|fantastic|cheerful|proud|excited|joyful][.|!| today.| right now.]", "[My day|My week|Today|This day|Everything|My life] [was|is|has been] [good|great|wonderful|fantastic|lovely|perfect|a success][.|!]",
                                "I [passed my test|won the game|won a prize|got a new flat|finished my book|got a good grade|got a raise|won the race|finished my project|won first place|made a new friend|got the job|found a flat|passed the driving test][!|.]", "[It is|Today is|It's] my [birthday|wedding day|first day at work|lucky day][!|.| today!]", "I have [good news|great news|wonderful news|a new dog|a new house|a new friend]!"],
    "The user is bored.": ["I [am|feel|am so|get|am really|am terribly] bored[.| today.| right now.| again.]", "[What|Which things] [can|could|should|shall|might] I do [today|now|this evening|this weekend|tonight|tomorrow|with my free time|on Sunday|this afternoon for fun|at home|in my holidays]?", "I [have|have got] [nothing to do|no plans|nothing on|no idea what to do|free time|too much time|a free day][.| today.| now.| this weekend.]",
                           GIVE + " [an idea|some idea|something to do|a tip|an activity|a plan] for [the evening|the weekend|today|a free day|Sunday|the holidays|a rainy day][?|.]", "[How|With what] [can|could|should] I [spend|fill|use] [my day|the evening|the weekend|my time|a free day|a rainy day]?"],
    "The user is tired.": ["I [am|feel|am feeling|am really|am quite] [tired|sleepy|exhausted|worn out|weary|without energy|drowsy|very tired|dead tired][.| today.| now.| this morning.| again.]", "I [slept|have slept|only slept] [badly|poorly|too little|only three hours|not at all|very little][.| last night.| this week.]", "I [need|want|could use] [sleep|some sleep|a nap|a rest|a break|more sleep].", "I [can|could] [hardly|barely] [stay awake|keep my eyes open|get up]."],
    "The user is hungry.": ["I [am|feel|am getting|am really|am very] hungry[.| now.| again.|!]", "[What|Which food|Which meal] [can|could|should|shall|might] I [eat|cook|have|make|prepare] [tonight|today|for lunch|for dinner|for supper|now|this evening|at noon]?", GIVE + " [an idea|a meal|a dish|something|some food|a tip] for [lunch|dinner|supper|a quick meal|noon][?|.]",
                            "I [want|need|would like|would love] [to eat something|some food|a meal|something good to eat|a snack].", "What [is|would be|makes] a good [lunch|dinner|meal|supper][| tonight| today]?"],
    "The user asks for breakfast.": ["[What|Which things] [can|could|should|shall|do] I [eat|have|make|prepare|cook] for [breakfast|a good breakfast|a healthy breakfast|my breakfast|breakfast tomorrow]" + END, GIVE + " [a good breakfast|a breakfast|an idea for my breakfast|a healthy breakfast|a breakfast tip|something for breakfast][?|.]",
                                     "[What|Which breakfast] is [a good breakfast|a healthy start|good in the morning|best for breakfast|healthy in the morning]?", "What [do people|should one] [eat|have] [for breakfast|in the morning]?"],
    "The user is not content.": ["[You are|You're|That is|That's|This is|That was|It is|Your answer is|Your answer was|The answer is] [wrong|false|incorrect|bad|nonsense|not true|rubbish|not good|a mistake|no help|not helpful|totally wrong|stupid|useless][.|!|, nano.]", "You [got|understood|said|did] [it wrong|this wrong|something wrong|that badly|it all wrong][.|!]",
                                 "I [do not|don't] [like|believe|agree with|accept] [this|that|this answer|your reply|what you say|that reply].", "You [cannot|can't|do not|don't] [help me|understand me|get it|listen|know anything][.|!]", "[No|Nope|Sorry, but no], [that is not it|you are wrong|this is false|not correct|try again]."],
    "The user praises me.": ["[You are|You're|nano, you are] [great|clever|smart|wonderful|helpful|very kind|the best|a good model|fantastic|really good|nice|brilliant|so clever|amazing]" + "[!|.|, nano.]", "[That was|This was|That is|What] a [good|great|nice|clever|fine|perfect|helpful|wonderful] [answer|reply|job|work|idea][!|.]", "[Good|Great|Nice|Excellent|Fine|Wonderful|Fantastic] [work|job|answer|reply][!|, nano!|.]",
                             "I [like|love|admire] [you|your style|your answer|talking to you|how you answer|this answer][.|!| very much.]", "[Bravo|Impressive|Well answered|Very clever|Nicely done|Brilliant][!|.]", "You [did|answered|explained|said] [that well|it well|this very well|a good job]."],
    "The user says sorry.": ["[I am|I'm|Oh, I am|Really] [very |really |terribly |]sorry[!| about this.| for this.| for the trouble.| for my words.]", "[Excuse me|Pardon|Forgive me|My apologies|Please forgive me|I beg your pardon|I apologise for that|My fault|My bad][.|!|, nano.|, please.]", "[That was|It was|This was] [my mistake|my fault|my error|not nice of me]."],
    "The user asks whether I make mistakes.": ["[Do|Can|Could|Will] you [make mistakes|be wrong|err|make errors|fail|get things wrong|say wrong things][| sometimes| too]?", "[Can|Should|May|Could|Must] I [trust|believe|rely on|depend on|check] [you|your answers|what you say|your words|everything you say|your results]?", "[Are|Is] [you|your answers|what you say|your results|your information] [always |ever |sometimes |][right|correct|true|wrong|reliable|exact|trustworthy]?",
                                               "How [reliable|trustworthy|good|exact|correct|often right] are [you|your answers|your results]?", "[Do|Will] you [ever|sometimes|always] [lie|say the truth|make errors|tell lies|know the right answer]?"],
}

HOW = {"The user wants to make tea.": "[make tea|brew tea|prepare tea|cook tea|make a cup of tea|make some tea|make a good tea|make a pot of tea]", "The user wants to boil an egg.": "[boil an egg|cook an egg|make a boiled egg|prepare an egg|boil eggs|boil my egg|get a boiled egg]",
       "The user wants a sandwich.": "[make a sandwich|prepare a sandwich|build a sandwich|make a cheese sandwich|make a good sandwich|put a sandwich together]", "The user wants to plant.": "[plant a seed|grow a plant|grow a flower|plant a flower|grow flowers|grow tomatoes|take care of a plant|start a garden|raise a plant|plant seeds]",
       "The user wants to sleep well.": "[sleep better|sleep well|fall asleep|fall asleep faster|get better sleep|have a good sleep|sleep through the night|sleep more]", "The user wants to learn well.": "[learn better|study better|learn faster|study well|prepare for an exam|learn for a test|remember more|study for my exam|remember things better|get better grades]",
       "The user wants to plan the day.": "[plan my day|manage my time|get more done|organise my day|plan my work|use my time better|handle a busy day|structure my day|do all my work]"}
for _reasoning, _what in HOW.items():
    PATTERNS[_reasoning] = ["[How|In which way|How exactly] [do I|can I|could I|should I|do you|does one|can one|must I|would you] " + _what + END, "[Tell me|Explain|Show me|Teach me|Can you tell me|Please explain|Can you show me|Describe|Could you explain|I want to know|Do you know|Please tell me] how to " + _what + "[?|.|, please.]",
                            "I [want|would like|need|am trying|plan|have] to " + _what + "[.|, how?|, please help.|. What do I do?]", "[What|Which] is [the best way|a good way|the right way|an easy way|the trick] to " + _what + "?", "[Help|Please help|Can you help] me " + _what + "[.|?]", "[Any|Give me some|Give me|I need] [tips|advice|help|hints] [on how to|to] " + _what + "[?|.]"]

WHY = {"The user asks about the sky.": ("[the sky is blue|the sky looks blue|the sky is so blue|we see the sky in blue|the heaven is blue]", "[is the sky blue|is the sky so blue|does the sky appear blue|has the sky a blue colour]"),
       "The user asks about rain.": ("[it rains|rain falls|rain forms|there is rain|rain comes down|drops fall from the sky]", "[does it rain|does rain fall|is there rain|does rain come|does rain happen|do drops fall]"),
       "The user asks about birds.": ("[birds can fly|birds fly|a bird can fly|birds stay up|birds do not fall]", "[can birds fly|do birds stay up|can a bird fly|are birds able to fly|do birds manage to fly]"),
       "The user asks about the Moon.": ("[the Moon goes around the Earth|the Moon moves|the Earth moves|the Earth goes around the Sun|the Moon travels]", "[does the Moon move around us|does the Earth move|does the Moon circle the Earth|do the Earth and the Moon move]"),
       "The user asks what a model is.": ("[a language model works|language models work|you work|a model like you works|you function|a model answers]", "[do you work inside|does a language model function|does your model work|do models like you work|are you built inside]")}
for _reasoning, (_clause, _question) in WHY.items():
    _why = "how" if _reasoning.endswith("model is.") else "[why|how]" if _reasoning.endswith(("birds.", "Moon.")) else "[why|how come]" if _reasoning.endswith("sky.") else "[why|how it comes that]"
    _ask = "How" if _reasoning.endswith("model is.") else "Why" if _reasoning.endswith("sky.") else "[Why|How]"
    PATTERNS[_reasoning] = [TELL + f" {_why} {_clause}[?|.|, please.]", f"{_ask} {_question}" + END]
PATTERNS["The user asks what a model is."] += ["[What|What exactly|What kind of thing] [is|are] [a language model|an LLM|a large language model|language models in general]" + END, TELL + " [what a language model is|what language models are|what an LLM is|what a model does][?|.]", "[Define|Describe|Explain] [language model|a language model|language models][.|, please.]"]
PATTERNS["The user asks about rain."] += ["[Where|From where] does [the rain|all the rain|rain water] come[| from]?", "[What|Which thing] [makes rain|causes the rain|brings rain|lets it rain]?", "How [is|does] [rain made|rain formed|rain develop|rain start]?"]
PATTERNS["The user asks about the sky."] += ["[What|Which thing] [makes|colours|paints] the sky[| so] blue?", "[What is|Give me|Explain] the [reason|cause] [for|of] the blue [sky|colour of the sky][?|.]"]
PATTERNS["The user asks about the Moon."] += ["[What|Which body] [circles|goes round|turns around|travels around] the [Earth|Sun]?", "[Does|Do you think] the [Moon goes|Earth goes|Moon turns] around the [Earth|Sun][?|, right?]", "[Tell me|Explain|Describe] [how the Moon travels|the way of the Moon|the path of the Moon|what the Moon does]."]

LISTS = {"The user asks for the days.": ("[days of the week|days of a week|seven days|weekdays|days in a week]", "days [does a week have|has the week|make a week|are in one week]"),
         "The user asks for the months.": ("[months|months of a year|twelve months|months in a year|month names]", "months [does a year have|has the year|make a year|are in one year]"),
         "The user asks for the seasons.": ("[seasons|four seasons|seasons in a year|seasons of a year]", "seasons [does a year have|has the year|are in a year|do we have]"),
         "The user asks for the planets.": ("[planets|planets of the Sun|eight planets|planets in our system|planets of our solar system]", "planets [go around the Sun|are in the solar system|do we know|has the solar system]")}
for _reasoning, (_things, _count) in LISTS.items():
    PATTERNS[_reasoning] = ["[What are|Tell me|Name|List|Give me|Can you name|Could you list|Please list|Please name|Write down|Do you know|Say|Recite|I need|Show me] [the |all the |all |]" + _things + "[?|.|, please.]", f"[How many|Which|What] {_count}" + END]

PATTERNS.update({
    "The user asks a deep question.": ["[What is|What's|Tell me|Do you know|Explain|What do you think is] the [meaning|sense|purpose|goal|point|secret|reason] of [life|our life|living|human life|it all|our existence][?|.]", "[Why|What for] [do we exist|do people live|are people here|am I here|do we live at all|are we alive]?", "What [is life good for|makes life good|makes a life worth living|is a good life|should we live for]?"],
    "The user wants to hear more.": ["[Tell|Can you tell|Please tell|Could you tell] me more[| about it| about this| of that| please][.|?]", "[Give|Can you give|Please give|I need|I want] [me |][more details|more information|a longer answer|more about it|a bit more|further details][.|?|, please.]", "[Go on|Please continue|Carry on|Keep going|Say some more|And what else|What next|More|Even more|And more][.|?|, please.]", "[Why is it so|Why so|How come|What does that mean|Can you explain that again|Explain this further|What is the reason]?"],
    "The user agrees.": ["[Okay|All right then|Alright then|Fine with me|Yes|Sure thing|Right|I agree|That is good|That's fine|Good enough|I see that|Makes sense|Very good then|As you say|Understood, good|Clear|Yep|Yeah|Aha|So be it|Fair enough|That is okay|Great, okay|Sounds fine|I got it|Perfect, okay|Noted][.|!|]"],
})

# before a question; no greeting, that would be another intent
ASIDES = "[So, |Well, |Nano, |Now, |One question: |And |Ok, |Just asking: |Please tell me: |Say, |Hm, |Another question: |By the way, |Next: ]"
HELD = frozenset().union(*(apart("chat", wordings) for _, _, wordings in FIXED))
ANSWERS = {reasoning: answer for answer, reasoning, _ in FIXED}
# intents with more to say come more often
WEIGHTS = {r: min(sum(map(forms, p)), 300) ** 0.5 for r, p in PATTERNS.items()}


def composed(src: Source) -> Turn:
    """A known intent in a wording put together from parts."""
    reasoning = src.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    while bare(text := spoken(src, src.pick(PATTERNS[reasoning])).replace(" ,", ",")) in HELD:
        pass
    text = W.capital(text)
    if text.endswith("?") and src.chance(0.15):
        text = spoken(src, ASIDES) + (text if src.chance(0.5) else text[0].lower() + text[1:] if not text.startswith("I ") else text)
    return Turn(casual(src, text), ANSWERS[reasoning], reasoning)
